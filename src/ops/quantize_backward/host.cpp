// quantize_backward on the host.
#include <array>
#include <cstdint>

#include "core/rejects.h"
#include "core/sku.h"
#include "host/affine.h"
#include "host/rows.h"
#include "ops/quantize_backward/desc.h"

namespace planq::quantize_backward {
namespace {

using host::Stored;
using math::Compute;

template <class T>
Status launch(const State& state, const Operands& operands, Workspace, const Stream& stream) {
  using C = Compute<T>;
  const Fields& f = state.as<Fields>();
  const auto recipe = recipe_of<C>(f);
  const auto& loops = host::affine_loops<T>();
  const T* grad_output = static_cast<const T*>(operands[kGradOutput].data);
  const T* input = static_cast<const T*>(operands[kInput].data);
  T* grad_input = static_cast<T*>(operands[kGradInput].data);
  const bool asymmetric = f.mode == Mode::Asymmetric;
  const host::GivenOperands given = {operands[kScale].data,
                                     asymmetric ? operands[kZeroPoint].data : nullptr,
                                     f.scale_dtype, f.zero_point_dtype, NibbleOrder::LowFirst};
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kGradOutput]},
      {&operands[kInput]},
      {&operands[kGradInput]},
      {&operands[kScale]},
      {asymmetric ? &operands[kZeroPoint] : nullptr, is_four_bit(f.zero_point_dtype)}};
  host::for_each_stretch<C>(
      stream.threads, f.shape, f.scope, layout, given, recipe,
      [&](host::Stretch<C>& s, const host::StretchPlace& place, std::int64_t count) {
        loops.widen(input + place.at.at[1], count, s.value);
        loops.pass(s, count, recipe);
        loops.widen(grad_output + place.at.at[0], count, s.other);
        for (std::int64_t i = 0; i < count; ++i) {
          const C g =
              math::quotient_of(s.other[i], s.segment(static_cast<int>(i)), recipe.quotient);
          s.value[i] = s.byte[i] ? g : C{0};
        }
        loops.narrow(s.value, count, grad_input + place.at.at[2]);
      });
  return Status::success();
}

template <DType kType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kType, descriptor.as<Fields>().input_dtype);
}

template <DType kType>
struct SkuParts {
  static constexpr std::array<std::string_view, 4> kParts = {
      "quantize_backward/host/elements/", short_name(kType), "_", short_name(kType)};
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
                    .basis = std::string_view("element by element; the quotient of the forward "
                                              "pass; exact integer sums")},
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

}  // namespace planq::quantize_backward
