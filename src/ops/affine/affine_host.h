// Elementwise affine operations on the host. A stretch of a row goes through three loops while it
// is in a first-level cache: widen to the compute type, compute with the parameters of each
// element, narrow to what is stored. So loops exist once per type and once per operation, not for
// every pair. They are in affine_loops.h, compiled for every instruction set by affine.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "core/elementwise.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "ops/affine/affine.h"

namespace planq::host {

// Elements of a stretch; even, so that two codes of one byte stay together.
inline constexpr int kStretch = 512;
// Elements that are worth waking a thread for.
inline constexpr std::int64_t kElementGrain = 1 << 15;

// The parameters of the elements of a stretch, one each, and what the elements become.
template <class C>
struct Stretch {
  C scale[kStretch], inverse[kStretch];
  C low[kStretch], high[kStretch];  // bounds of the rounded quotient
  C draw[kStretch];                 // of stochastic rounding
  std::int32_t zero_point[kStretch];
  bool vector = true;  // all zero points are small enough for sums in C to be exact

  C value[kStretch], other[kStretch];
  std::int32_t code[kStretch];
  std::uint8_t byte[kStretch];

  math::SegmentParameters<C> segment(int i) const {
    return {scale[i], inverse[i], zero_point[i], false};
  }
};

// The loops over a stretch of one instruction set and one type of stored elements.
template <class C>
struct AffineLoops {
  using Recipe = math::AffineRecipe<C>;
  void (*widen)(const void* from, std::int64_t count, C* to);
  void (*narrow)(const C* from, std::int64_t count, void* to);
  // value -> byte: codes of integers, of fp8.
  void (*quantize)(Stretch<C>& s, std::int64_t count, const Recipe& recipe);
  // code -> value.
  void (*dequantize)(Stretch<C>& s, std::int64_t count);
  // value -> value.
  void (*fake)(Stretch<C>& s, std::int64_t count, const Recipe& recipe, bool stochastic);
  // value -> byte: whether the gradient passes.
  void (*pass)(Stretch<C>& s, std::int64_t count, const Recipe& recipe);
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

// Fills a stretch's parameters from `first` to `last` with those at one place.
template <class C>
void fill_parameters(Stretch<C>& s, std::int64_t first, std::int64_t last,
                     const GivenOperands& given, const math::AffineRecipe<C>& recipe,
                     const ParameterPlace& at) {
  const C scale = math::load_scale<C>(given.scale, at.scale, given.scale_dtype);
  const std::int32_t zero_point =
      given.zero_point
          ? math::load_integer(given.zero_point, at.zero_point, given.zero_point_dtype, given.order)
          : 0;
  const C inverse = given.inverse ? static_cast<const C*>(given.inverse)[at.scale]
                                  : math::given_parameters(recipe, scale, zero_point).inverse;
  const C zero = static_cast<C>(zero_point);
  std::fill(s.scale + first, s.scale + last, scale);
  std::fill(s.inverse + first, s.inverse + last, inverse);
  std::fill(s.low + first, s.low + last, recipe.q_min - zero);
  std::fill(s.high + first, s.high + last, recipe.q_max - zero);
  std::fill(s.zero_point + first, s.zero_point + last, zero_point);
  s.vector =
      s.vector && zero_point <= kLargestVectorZeroPoint && zero_point >= -kLargestVectorZeroPoint;
}

// A stretch's place: offsets of its first element in every tensor, its column, and its index in the
// tensor.
struct StretchPlace {
  ElementOffsets at;
  std::int64_t column, index;
};

// Calls run(stretch, place, count) for every stretch of the tensors, with its parameters filled in.
// `whole`: as in element_layout().
template <class C, class Run>
void for_each_stretch(int threads, const Shape& shape, const Scope& scope,
                      const std::array<ElementOperand, 5>& operands, const GivenOperands& given,
                      const math::AffineRecipe<C>& recipe, const Run& run, bool whole = false) {
  const ElementLayout layout = element_layout(shape, scope, operands, whole);
  if (layout.elements() == 0) return;
  const std::int64_t stretches = (layout.length + kStretch - 1) / kStretch;
  const std::int64_t per_stretch = std::min<std::int64_t>(layout.length, kStretch);
  const auto body = [&](std::int64_t first, std::int64_t last) {
    const StrictFloat strict;
    Stretch<C> s;
    std::optional<ParameterPlace> held;  // of the parameters that fill the stretch
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t row = i / stretches, start = i % stretches * kStretch;
      const std::int64_t count = std::min<std::int64_t>(layout.length - start, kStretch);
      StretchPlace place{layout.rows.offsets(row), start, row * layout.length + start};
      const ParameterPlace parameters(place.at);
      if (layout.step == 0) {
        // One filling serves the stretches and rows that follow with the same parameters. It is as
        // long as a stretch can be, and what runs on a stretch leaves its parameters alone.
        if (held != parameters) {
          s.vector = true;
          fill_parameters(s, 0, per_stretch, given, recipe, parameters);
          held = parameters;
        }
      } else {
        s.vector = true;
        for (std::int64_t j = 0; j < count;) {
          const std::int64_t group = (start + j) / layout.divisor;
          const std::int64_t end = std::min((group + 1) * layout.divisor - start, count);
          fill_parameters(s, j, end, given, recipe, parameters.next(group));
          j = end;
        }
      }
      for (int k = 0; k < kElementTensors; ++k) place.at.at[k] += start;
      run(s, place, count);
    }
  };
  parallel_for(threads, layout.rows.size() * stretches,
               std::max<std::int64_t>(kElementGrain / per_stretch, 1), body);
}

}  // namespace planq::host
