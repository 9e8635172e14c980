// quantize_backward on the host.
#include <array>
#include <cstdint>

#include "core/gradient_rows.h"
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
  host::for_each_stretch<C>(
      stream.threads, f.shape, f.scope, layout_of(f, operands), given, recipe,
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
constexpr Kernel row() {
  return gradient_row<Gradient, Backend::Host, kType>(host::keep_fields<Fields>,
                                                      launch<Stored<kType>>);
}

constexpr Kernel kRows[] = {row<DType::Float16>(), row<DType::BFloat16>(), row<DType::Float32>(),
                            row<DType::Float64>()};

}  // namespace

extern const std::span<const Kernel> kHostRows;
const std::span<const Kernel> kHostRows = kRows;

}  // namespace planq::quantize_backward
