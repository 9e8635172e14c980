// Elementwise affine operations on the host. A chunk of a row goes through three loops while it is
// in a first-level cache: widen to the compute type, compute with the parameters of each element,
// narrow to what is stored. So loops exist once per type and once per operation, not for every
// pair. They are in loops.h, compiled for every instruction set by host.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "core/elementwise.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "ops/affine/microscaling.h"

namespace planq::host {

// Elements of a chunk; even, so that two codes of one byte stay together.
inline constexpr int kChunk = 512;
// Elements that are worth waking a thread for.
inline constexpr std::int64_t kElementGrain = 1 << 15;

// The parameters of the elements of a chunk, one each, and what the elements become.
template <class C>
struct Chunk {
  C scale[kChunk], inverse[kChunk];
  C low[kChunk], high[kChunk];  // bounds of the rounded quotient
  C uniform[kChunk];            // of stochastic rounding
  std::int32_t zero_point[kChunk];
  bool vector = true;  // all zero points are small enough for sums in C to be exact

  C value[kChunk], other[kChunk];
  std::int32_t code[kChunk];
  std::uint8_t byte[kChunk];

  math::SegmentParameters<C> segment(int i) const {
    return {scale[i], inverse[i], zero_point[i], false};
  }
};

// The loops over a chunk of one instruction set and one type of stored elements.
template <class C>
struct AffineLoops {
  using Spec = math::AffineSpec<C>;
  void (*widen)(const void* from, std::int64_t count, C* to);
  void (*narrow)(const C* from, std::int64_t count, void* to);
  // value -> byte: codes of integers, of fp8.
  void (*quantize)(Chunk<C>& s, std::int64_t count, const Spec& spec);
  // code -> value.
  void (*dequantize)(Chunk<C>& s, std::int64_t count);
  // value -> value.
  void (*fake)(Chunk<C>& s, std::int64_t count, const Spec& spec, bool stochastic);
  // value -> byte: whether the gradient passes.
  void (*pass)(Chunk<C>& s, std::int64_t count, const Spec& spec);
};

// Loops of the widest instruction set, for elements of this type.
template <class T>
const AffineLoops<math::Compute<T>>& affine_loops();

// Parameters as the operands hold them.
struct GivenOperands {
  const void* scale = nullptr;
  const void* zero_point = nullptr;  // null: there are none
  DType scale_dtype = DType::Float32, zero_point_dtype = DType::Int32;
  NibbleOrder order = NibbleOrder::LowFirst;
  const void* inverse = nullptr;  // factors in the compute type, where a range decided them
  float tensor_scale = 1;         // of scales in float8_e4m3fn

  template <class C>
  C scale_at(std::int64_t at) const {
    if (!is_fp8(scale_dtype)) return math::load_scale<C>(scale, at, scale_dtype);
    const std::uint8_t stored = static_cast<const std::uint8_t*>(scale)[at];
    return static_cast<C>(math::group_scale(stored, scale_dtype, tensor_scale));
  }
};

// Zero points up to this one leave sums with quotients and codes exact in float.
inline constexpr std::int32_t kLargestVectorZeroPoint = 1 << 21;

// Where the parameters of a row or a group are. Only equal places hold the same parameters: each
// operand has strides of its own, so one may repeat where the other goes on.
struct ParameterPlace {
  std::int64_t scale, zero_point;

  explicit ParameterPlace(const ElementOffsets& offsets)
      : scale(offsets.at[kElementScale]), zero_point(offsets.at[kElementZeroPoint]) {}
  ParameterPlace next(std::int64_t groups) const {
    ParameterPlace place = *this;
    place.scale += groups;
    place.zero_point += groups;
    return place;
  }
  bool operator==(const ParameterPlace&) const = default;
};

// Fills a chunk's parameters from `first` to `last` with those at one place.
template <class C>
void fill_parameters(Chunk<C>& s, std::int64_t first, std::int64_t last, const GivenOperands& given,
                     const math::AffineSpec<C>& spec, const ParameterPlace& at) {
  const C scale = given.scale_at<C>(at.scale);
  const std::int32_t zero_point =
      given.zero_point
          ? math::load_integer(given.zero_point, at.zero_point, given.zero_point_dtype, given.order)
          : 0;
  const C inverse = given.inverse ? static_cast<const C*>(given.inverse)[at.scale]
                                  : math::given_parameters(spec, scale, zero_point).inverse;
  const C zero = static_cast<C>(zero_point);
  std::fill(s.scale + first, s.scale + last, scale);
  std::fill(s.inverse + first, s.inverse + last, inverse);
  std::fill(s.low + first, s.low + last, spec.q_min - zero);
  std::fill(s.high + first, s.high + last, spec.q_max - zero);
  std::fill(s.zero_point + first, s.zero_point + last, zero_point);
  s.vector =
      s.vector && zero_point <= kLargestVectorZeroPoint && zero_point >= -kLargestVectorZeroPoint;
}

// A chunk's place: offsets of its first element in every tensor, its column, and its index in the
// tensor.
struct ChunkPlace {
  ElementOffsets at;
  std::int64_t column, index;
};

// Calls visit(chunk, place, count) for every chunk of the tensors, with its parameters filled in.
// `whole`: as in element_layout().
template <class C, class Visit>
void for_each_chunk(int threads, const Shape& shape, const Scope& scope,
                    const std::array<ElementOperand, 5>& operands, const GivenOperands& given,
                    const math::AffineSpec<C>& spec, const Visit& visit, bool whole = false) {
  const ElementLayout layout = element_layout(shape, scope, operands, whole);
  if (layout.elements() == 0) return;
  const std::int64_t chunks = (layout.length + kChunk - 1) / kChunk;
  const std::int64_t per_chunk = std::min<std::int64_t>(layout.length, kChunk);
  const auto body = [&](std::int64_t first, std::int64_t last) {
    Chunk<C> s;
    std::optional<ParameterPlace> held;  // of the parameters that fill the chunk
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t row = i / chunks, start = i % chunks * kChunk;
      const std::int64_t count = std::min<std::int64_t>(layout.length - start, kChunk);
      ChunkPlace place{layout.rows.offsets(row), start, row * layout.length + start};
      const ParameterPlace parameters(place.at);
      if (layout.step == 0) {
        // One filling serves the chunks and rows that follow with the same parameters. It is as
        // long as a chunk can be, and what runs on a chunk leaves its parameters alone.
        if (held != parameters) {
          s.vector = true;
          fill_parameters(s, 0, per_chunk, given, spec, parameters);
          held = parameters;
        }
      } else {
        s.vector = true;
        for (std::int64_t j = 0; j < count;) {
          const std::int64_t group = (start + j) / layout.divisor;
          const std::int64_t end = std::min((group + 1) * layout.divisor - start, count);
          fill_parameters(s, j, end, given, spec, parameters.next(group));
          j = end;
        }
      }
      for (int k = 0; k < kElementTensors; ++k) place.at.at[k] += start;
      visit(s, place, count);
    }
  };
  parallel_for(threads, layout.rows.size() * chunks,
               std::max<std::int64_t>(kElementGrain / per_chunk, 1), body);
}

}  // namespace planq::host
