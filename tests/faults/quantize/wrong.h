// Wrong int8 codes of float32: ties go up instead of to the even code.
#pragma once

#include "../wrong.h"
#include "ops/affine/affine.h"
#include "ops/affine/quantize/desc.h"

namespace planq::quantize {

struct HalfUp {
  static constexpr std::string_view kName = "wrong_half_up";

  ElementLayout layout;
  math::AffineSpec<float> spec;
  const float* input;
  std::uint8_t* output;
  const void *scale, *zero_point;
  DType scale_dtype, zero_point_dtype;
  NibbleOrder order;
  std::int64_t count;

  HalfUp(const Call& call, int) : spec(spec_of<float>(call.fields<Fields>())) {
    const Fields& f = call.fields<Fields>();
    const Operands& given = call.operands;
    const bool asymmetric = f.mode == Mode::Asymmetric;
    layout = element_layout(
        f.shape, f.scope,
        {ElementOperand{&given[kInput]},
         {&given[kOutput]},
         {},
         {&given[kScale]},
         {asymmetric ? &given[kZeroPoint] : nullptr, is_four_bit(f.zero_point_dtype)}});
    input = static_cast<const float*>(given[kInput].data);
    output = static_cast<std::uint8_t*>(given[kOutput].data);
    scale = given[kScale].data;
    zero_point = asymmetric ? given[kZeroPoint].data : nullptr;
    scale_dtype = f.scale_dtype;
    zero_point_dtype = f.zero_point_dtype;
    order = f.nibble_order;
    count = layout.elements();
  }

  PLANQ_HD void operator()(std::int64_t i) const {
    const ElementOffsets at = wrong::element_at(layout, i);
    const std::int32_t zero = zero_point ? math::load_integer(zero_point, at.at[kElementZeroPoint],
                                                              zero_point_dtype, order)
                                         : 0;
    const auto segment = math::given_parameters(
        spec, math::load_scale<float>(scale, at.at[kElementScale], scale_dtype), zero);
    const float quotient = math::quotient_of(input[at.at[0]], segment, spec.quotient);
    const float rounded = math::floor_of(quotient + 0.5f);
    output[at.at[1]] =
        static_cast<std::uint8_t>(math::integer_code(rounded, zero, spec.q_low, spec.q_high));
  }
};

inline Reason rejects_wrong(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", DType::Float32, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "output_dtype", DType::Int8, f.output_dtype);
}

// Hosts and GPUs have had revisions of their own.
constexpr Kernel wrong_entry(std::uint16_t revision) {
  return wrong::entry("quantize", kDTypes<DType::Float32, DType::Int8>, revision, wrong::kPromise<>,
                      rejects_wrong);
}

}  // namespace planq::quantize
