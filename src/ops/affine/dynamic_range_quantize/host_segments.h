// What the loops of host_kernels.h and their drivers in host_launch.h hand to each other.
#pragma once

#include <cstdint>

#include "ops/affine/scale.h"

namespace planq::dynamic_range_quantize {

// Segments that are measured and quantized together: a batch of rows, or a tile of columns.
template <class C>
inline constexpr int kSegments = 2048 / sizeof(C);

// How the elements of a segment become codes.
enum class Path : std::uint8_t {
  Vector,    // finite, and the quotient is far from overflow and underflow
  Scalar,    // math::code_of for each element
  Poisoned,  // one code for all
};

// What is measured of segments side by side, so that loops over them are vector loops too; aligned,
// so that no vector lies in two cache lines.
template <class C>
struct alignas(64) SegmentRanges {
  // The range of the finite elements; later the bounds of the rounded quotient.
  C low[kSegments<C>], high[kSegments<C>];
  bool special[kSegments<C>];  // a NaN or an infinity was seen
};

// The same with what follows from it.
template <class C>
struct Segments : SegmentRanges<C> {
  C scale[kSegments<C>], inverse[kSegments<C>];
  std::int32_t zero_point[kSegments<C>];
  std::uint8_t zero_code[kSegments<C>];  // low byte of zero_point, added to codes modulo 256
  Path path[kSegments<C>];

  math::SegmentParameters<C> parameters(std::int64_t i) const {
    return {scale[i], inverse[i], zero_point[i], path[i] == Path::Poisoned};
  }
};

// Whether x / scale, for an element x of the segment, can be had by correcting x * (1 / scale): far
// from where the steps could underflow or overflow. In double it is always a division.
inline bool is_exact(float scale) { return scale >= 0x1p-64f && scale <= 0x1p64f; }
inline bool is_exact(double) { return true; }

// Rows of `length` contiguous elements, `stride` elements apart.
struct Rows {
  std::int64_t length = 0;
  std::int64_t count = 0;
  std::int64_t stride = 0;
};

// Which segments rows belong to: row i to segment first + i * step. Step 0 is one segment for all.
struct Owner {
  int first = 0;
  int step = 0;
};

// What a loop does to the caches: the input that will be wanted next lies `ahead` bytes further,
// and `stream` writes codes past them (host::stream_fence() follows).
struct Memory {
  std::int64_t ahead = 0;
  bool stream = false;
};

// Measures, for one input type.
template <class C>
struct RangeKernels {
  void (*rows)(const void* input, Rows rows, Owner owner, std::int64_t ahead, bool signs,
               SegmentRanges<C>& ranges);
  // Column j of all rows is segment j; rows.length <= kSegments<C>.
  void (*columns)(const void* input, Rows rows, std::int64_t ahead, bool signs,
                  SegmentRanges<C>& ranges);
};

// Codes, for one input type and one class of codes: a byte each, those of consecutive rows
// code_stride bytes apart. Rows whose path is not Vector are left out; in such columns the codes
// are meaningless.
template <class C>
struct QuantizeKernels {
  void (*rows)(const void* input, Rows rows, Owner owner, std::uint8_t* codes,
               std::int64_t code_stride, Memory memory, bool divide, const Segments<C>& segments);
  void (*columns)(const void* input, Rows rows, std::uint8_t* codes, std::int64_t code_stride,
                  Memory memory, bool divide, const Segments<C>& segments);
};

// math::segment_parameters for symmetric segments without special elements, whose scale is stored
// in its own type, and which no RATIO quantizes. True if all of them have path Vector.
template <class C>
using SettleKernel = bool (*)(const math::AffineRecipe<C>& recipe, std::int64_t count,
                              Segments<C>& segments);

// Two 4-bit codes to a byte.
using PackKernel = void (*)(const std::uint8_t* codes, std::int64_t bytes, std::uint8_t* out,
                            bool low_first);

}  // namespace planq::dynamic_range_quantize
