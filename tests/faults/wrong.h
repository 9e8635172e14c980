// Wrong kernels, which show that the audit sees what is wrong. A fault is a functor of one element
// or of the whole call; both backends run the same one. It is right but for what its name says.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/elementwise.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "core/sku.h"

namespace planq::wrong {

// No selection prefers a wrong kernel: it runs where it is pinned.
inline constexpr std::int16_t kRank = 30000;

// What every one of them promises, and does not keep.
template <MathPrecision kMath = MathPrecision::F32, Rounding kRounding = Rounding::NearestEven>
inline constexpr Guarantee kPromise = {.determinism = Determinism::BitExact,
                                       .math = kMath,
                                       .accumulator = DType::Float32,
                                       .rounding = kRounding,
                                       .max_ulp = 0,
                                       .error_bound = kNoErrorBound,
                                       .batch_invariant = true,
                                       .basis = "nothing: this kernel is wrong"};

// An entry of the registry whose fault is yet to come, and the backend.
constexpr Kernel entry(std::string_view op, std::span<const DType> dtypes, std::uint16_t revision,
                       const Guarantee& guarantee,
                       Reason (*rejects)(const Descriptor&, const Device&)) {
  return {.op = op,
          .body = {},
          .dtypes = dtypes,
          .revision = revision,
          .backend = Backend::Host,
          .arch = {},
          .rank = kRank,
          .guarantee = guarantee,
          .rejects = rejects,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = nullptr};
}

// Serial kernels take a while: they refuse what would take seconds.
inline Reason expect_few(const Shape& shape) {
  constexpr std::int64_t kMost = 1 << 16;
  if (shape.elements() <= kMost) return Reason::accept();
  return Reason::refuse(ReasonKind::Shape, "takes at most ", kMost, " elements");
}

// Element `index` of tensors of one shape, with its parameters.
PLANQ_HD ElementOffsets element_at(const ElementLayout& layout, std::int64_t index) {
  const std::int64_t column = index % layout.length;
  ElementOffsets at = layout.rows.offsets(index / layout.length);
  for (int i = 0; i < kElementTensors; ++i) at.at[i] += column;
  const std::int64_t step = layout.step == 0 ? 0 : column / layout.divisor * layout.step;
  at.at[kElementScale] += step;
  at.at[kElementZeroPoint] += step;
  return at;
}

}  // namespace planq::wrong
