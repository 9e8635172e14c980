// dequantize_backward on the host.
#include <array>
#include <cstdint>

#include "core/rejects.h"
#include "core/sku.h"
#include "host/affine.h"
#include "host/rows.h"
#include "ops/dequantize_backward/desc.h"

namespace planq::dequantize_backward {
namespace {

using host::Stored;
using math::Compute;

template <class T>
Status launch(const State& state, const Operands& operands, Workspace, const Stream& stream) {
  using C = Compute<T>;
  const Fields& f = state.as<Fields>();
  const auto& loops = host::affine_loops<T>();
  const T* grad_output = static_cast<const T*>(operands[kGradOutput].data);
  T* grad_input = static_cast<T*>(operands[kGradInput].data);
  const host::GivenOperands given = {operands[kScale].data, nullptr, f.scale_dtype};
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kGradOutput]}, {&operands[kGradInput]}, {}, {&operands[kScale]}, {}};
  host::for_each_stretch<C>(
      stream.threads, f.shape, f.scope, layout, given, math::AffineRecipe<C>{},
      [&](host::Stretch<C>& s, const host::StretchPlace& place, std::int64_t count) {
        loops.widen(grad_output + place.at.at[0], count, s.value);
        for (std::int64_t i = 0; i < count; ++i) s.value[i] *= s.scale[i];
        loops.narrow(s.value, count, grad_input + place.at.at[1]);
      });
  return Status::success();
}

template <DType kType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "output_dtype", kType, descriptor.as<Fields>().output_dtype);
}

template <DType kType>
struct SkuParts {
  static constexpr std::array<std::string_view, 4> kParts = {
      "dequantize_backward/host/elements/", short_name(kType), "_", short_name(kType)};
};

template <DType kType>
constexpr Kernel row() {
  constexpr bool kWide = kType == DType::Float64;
  return {
      .sku = JoinedText<SkuParts<kType>>::view(),
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = kWide ? DType::Float64 : DType::Float32,
                    .rounding = Rounding::NearestEven,
                    .max_ulp = 0,
                    .batch_invariant = true,
                    .basis = std::string_view("element by element; one product")},
      .rejects = rejects<kType>,
      .workspace = host::no_workspace,
      .prepare = host::keep_fields<Fields>,
      .launch = launch<Stored<kType>>,
  };
}

constexpr Kernel kRows[] = {row<DType::Float16>(), row<DType::BFloat16>(), row<DType::Float32>(),
                            row<DType::Float64>()};

}  // namespace

extern const std::span<const Kernel> kHostRows;
const std::span<const Kernel> kHostRows = kRows;

}  // namespace planq::dequantize_backward
