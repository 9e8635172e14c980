// Vectorwise quantization on the host: loops over a chunk of a row while it is in the L1 cache.
// vectorwise_host.cpp compiles them for every instruction set. The loops of
// affine/elementwise/host.h widen and narrow elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "core/elementwise.h"
#include "host/thread_pool.h"
#include "ops/affine/elementwise/host.h"
#include "ops/outlier/vectorwise.h"

namespace planq::host {

// The parameters of each element of a chunk, and the results.
template <class C>
struct VectorwiseChunk {
  C scale[kChunk], factor[kChunk], zero[kChunk];
  std::int32_t zero_point[kChunk];
  bool products = true;  // all factors are finite
  bool narrow = true;    // differences of codes and zero points fit into 32 bits

  C value[kChunk];
  std::int32_t code[kChunk];
  std::uint8_t byte[kChunk];
};

template <class C>
struct VectorwiseLoops {
  // scale, zero point -> factor, zero.
  void (*prepare)(VectorwiseChunk<C>& s, std::int64_t count);
  // value -> byte.
  void (*quantize)(VectorwiseForm form, VectorwiseChunk<C>& s, std::int64_t count);
  // code -> value.
  void (*dequantize)(VectorwiseForm form, VectorwiseChunk<C>& s, std::int64_t count);
};

// Loops of the widest instruction set.
template <class C>
const VectorwiseLoops<C>& vectorwise_loops();

// Tensor, codes and statistics of a call, in either direction.
template <class C>
struct VectorwiseOperands {
  const OperandView *from, *to, *scale, *zero_point;  // zero_point: null where there are none

  const C* scales() const { return static_cast<const C*>(scale->data); }
  const std::int32_t* zero_points() const {
    return zero_point ? static_cast<const std::int32_t*>(zero_point->data) : nullptr;
  }
};

// Calls visit(chunk, offsets in both tensors, count) for every chunk of a row, with its parameters
// filled in. A row has one statistic, or one for each element, because vectors span a whole axis.
template <class C, class Visit>
void for_each_vectorwise_chunk(int threads, const Shape& shape, const Scope& scope,
                               const VectorwiseOperands<C>& operands, const Visit& visit) {
  const ElementLayout layout = element_layout(
      shape, scope,
      {ElementOperand{operands.from}, {operands.to}, {}, {operands.scale}, {operands.zero_point}});
  if (layout.elements() == 0) return;
  const auto& loops = vectorwise_loops<C>();
  const std::int64_t chunks = (layout.length + kChunk - 1) / kChunk;
  const std::int64_t per_chunk = std::min<std::int64_t>(layout.length, kChunk);
  const auto body = [&](std::int64_t first, std::int64_t last) {
    VectorwiseChunk<C> s;
    std::fill_n(s.zero_point, kChunk, 0);
    std::optional<ParameterPlace> held;  // where the parameters in the chunk come from
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t row = i / chunks, start = i % chunks * kChunk;
      const std::int64_t count = std::min<std::int64_t>(layout.length - start, kChunk);
      const ElementOffsets at = layout.rows.offsets(row);
      const std::int64_t own = start * layout.step;  // to the statistics of the first element
      const C* const scale = operands.scales() + at.at[kElementScale] + own;
      const std::int32_t* const zero =
          operands.zero_point ? operands.zero_points() + at.at[kElementZeroPoint] + own : nullptr;
      if (layout.step != 0) {
        std::copy_n(scale, count, s.scale);
        if (zero) std::copy_n(zero, count, s.zero_point);
        loops.prepare(s, count);
      } else if (const ParameterPlace place(at); held != place) {
        // Later chunks and rows with the same statistic reuse the filled chunk.
        std::fill_n(s.scale, per_chunk, *scale);
        if (zero) std::fill_n(s.zero_point, per_chunk, *zero);
        loops.prepare(s, per_chunk);
        held = place;
      }
      visit(s, std::array<std::int64_t, 2>{at.at[0] + start, at.at[1] + start}, count);
    }
  };
  parallel_for(threads, layout.rows.size() * chunks,
               std::max<std::int64_t>(kElementGrain / per_chunk, 1), body);
}

}  // namespace planq::host
