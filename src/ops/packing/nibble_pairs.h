// Where codes that have a byte each lie, beside the packed bytes that hold two of them along any
// axis: the index space of operators that pack and unpack.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/index_space.h"
#include "core/operands.h"

namespace planq {

// The shape of the packed bytes.
inline Shape packed_shape(Shape shape, std::int64_t axis) {
  const int at = static_cast<int>(axis);
  shape[at] = shape[at] / 2 + shape[at] % 2;
  return shape;
}

// The type of 4-bit codes that have a byte each.
constexpr DType byte_dtype(DType codes) { return is_unsigned(codes) ? DType::UInt8 : DType::Int8; }

// The same as rules.
constexpr Rule packed_along(const char* shape, const char* axis) {
  return with_axis(shape, axis, groups_of(axis_of(shape, axis), 2));
}
constexpr Rule byte_dtype(const char* codes) {
  return when(is(codes, is_unsigned), DType::UInt8, DType::Int8);
}

// What the packed bytes of 4-bit codes are in a descriptor: the shared storage of two codes goes
// along the last axis, so along any other they are plain bytes.
constexpr Rule packed_dtype(const char* codes, const char* shape, const char* axis) {
  return when(is_last(axis, shape), codes, DType::UInt8);
}

struct NibblePairs {
  // Operands of the space. kPosition is the index along the packed axis, and stays 0 where that
  // axis is even.
  enum Operand : int { kCodes, kPacked, kPosition };

  IndexSpace bytes;       // every packed byte, with its first code
  std::int64_t second;    // from a byte's first code to its second
  std::int64_t pairs;     // positions from here on have no second code
  bool has_spare_nibble;  // the packed axis ends with such a position

  NibblePairs(const Shape& shape, std::int64_t axis, const OperandView& codes,
              const OperandView& packed) {
    const Shape extents = packed_shape(shape, axis);
    for (int i = 0; i < shape.rank; ++i) {
      Axis step;
      step.extent = extents[i];
      step.stride[kCodes] = codes.strides[i] * (i == axis ? 2 : 1);
      step.stride[kPacked] = packed.strides[i];
      step.stride[kPosition] = i == axis && shape[i] % 2 != 0 ? 1 : 0;
      bytes.append(step);
    }
    if (bytes.rank == 0) bytes.axes[bytes.rank++] = {};
    bytes.merge();
    second = codes.strides[static_cast<int>(axis)];
    pairs = shape[static_cast<int>(axis)] / 2;
    has_spare_nibble = shape[static_cast<int>(axis)] % 2 != 0;
  }

  // The innermost axis of `bytes`: a line of packed bytes.
  const Axis& inner_axis() const { return bytes.axes[bytes.rank - 1]; }
  // Whether the two codes of a byte are neighbours in memory, and so are the bytes of a line.
  bool adjacent() const {
    return second == 1 && inner_axis().stride[kCodes] == 2 && inner_axis().stride[kPacked] == 1;
  }
  // Whether the first codes of a line are consecutive in memory, and so are its second codes and
  // its bytes.
  bool planes() const {
    return inner_axis().stride[kCodes] == 1 && inner_axis().stride[kPacked] == 1;
  }

  // Whether the position changes along a line.
  bool moves() const { return inner_axis().stride[kPosition] != 0; }

  // Calls visit(codes, packed, count, whole) for each line, or part of one, of the packed bytes
  // [first, last): the offsets of its first byte, how many bytes it has, and how many of them have
  // two codes.
  template <class Visit>
  void each_line(std::int64_t first, std::int64_t last, const Visit& visit) const {
    const Axis& inner = inner_axis();
    IndexSpace lines = bytes;
    --lines.rank;
    while (first < last) {
      const std::int64_t line = first / inner.extent, skipped = first - line * inner.extent;
      const std::int64_t count = std::min(inner.extent - skipped, last - first);
      const Offsets at = lines.offsets(line);
      const auto start = [&](int operand) {
        return at.at[operand] + skipped * inner.stride[operand];
      };
      const std::int64_t left = std::clamp<std::int64_t>(pairs - start(kPosition), 0, count);
      visit(start(kCodes), start(kPacked), count, moves() || left == 0 ? left : count);
      first += count;
    }
  }
};

}  // namespace planq
