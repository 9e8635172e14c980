// Wrong stochastic rounding of float32: random numbers repeat after 64 elements.
#pragma once

#include "../wrong.h"
#include "core/scalar.h"
#include "ops/affine/affine.h"
#include "ops/affine/fake_quantize/desc.h"

namespace planq::fake_quantize {

struct PhiloxRepeats {
  static constexpr std::string_view kName = "wrong_philox_repeats";

  ElementLayout layout;
  math::AffineSpec<float> spec;
  const float* input;
  float* output;
  const void *scale, *zero_point;
  DType scale_dtype, zero_point_dtype;
  IntegerScalar seed, offset;
  std::int64_t count;

  PhiloxRepeats(const Call& call, int)
      : spec(spec_of<float>(call.fields<Fields>())),
        seed(integer_of(call.operands[kSeed])),
        offset(integer_of(call.operands[kOffset])) {
    const Fields& f = call.fields<Fields>();
    const Operands& given = call.operands;
    const bool asymmetric = f.mode == Mode::Asymmetric;
    layout = element_layout(f.shape, f.scope,
                            {ElementOperand{&given[kInput]},
                             {&given[kOutput]},
                             {},
                             {&given[kScale]},
                             {asymmetric ? &given[kZeroPoint] : nullptr}});
    input = static_cast<const float*>(given[kInput].data);
    output = static_cast<float*>(given[kOutput].data);
    scale = given[kScale].data;
    zero_point = asymmetric ? given[kZeroPoint].data : nullptr;
    scale_dtype = f.scale_dtype;
    zero_point_dtype = f.zero_point_dtype;
    count = layout.elements();
  }

  PLANQ_HD void operator()(std::int64_t i) const {
    const ElementOffsets at = wrong::element_at(layout, i);
    const std::int32_t zero = zero_point
                                  ? math::load_integer(zero_point, at.at[kElementZeroPoint],
                                                       zero_point_dtype, NibbleOrder::LowFirst)
                                  : 0;
    const auto segment = math::given_parameters(
        spec, math::load_scale<float>(scale, at.at[kElementScale], scale_dtype), zero);
    const auto uniform = math::element_uniform<float>(static_cast<std::uint64_t>(seed.get()),
                                                      static_cast<std::uint64_t>(offset.get()),
                                                      static_cast<std::uint64_t>(i % 64));
    output[at.at[1]] = math::fake_quantized(input[at.at[0]], spec, segment, true, uniform);
  }
};

constexpr Kernel wrong_entry() {
  Kernel kernel = wrong::entry("fake_quantize", kDTypes<DType::Float32, DType::Float32>, 2,
                               wrong::kPromise<MathPrecision::F32, Rounding::Stochastic>,
                               rejects<DType::Float32, Rounding::Stochastic, false>);
  kernel.arithmetic = arithmetic_of(Rounding::Stochastic);
  return kernel;
}
inline constexpr Kernel kWrong = wrong_entry();

}  // namespace planq::fake_quantize
