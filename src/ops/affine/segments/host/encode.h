// From measured segments to scales, zero points and codes, on the host: what a SegmentDriver
// (ranges/segment_driver.h) uses segments for whose parameters follow from their ranges. The loops
// are in encode_loops.h, compiled for every instruction set by encode.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/device.h"
#include "host/simd.h"
#include "ops/affine/elementwise/host.h"
#include "ops/affine/ranges/segment_driver.h"
#include "ops/affine/scale.h"

namespace planq::host {

// How the elements of a segment become codes.
enum class EncodeMethod : std::uint8_t {
  Vector,    // finite, and the quotient is far from overflow and underflow
  Scalar,    // math::code_of for each element
  Poisoned,  // one code for all
};

// Segments side by side: what is known of them in arrays, so that loops over them are vector loops
// too; aligned, so that no vector lies in two cache lines.
template <class C>
struct alignas(64) EncodedBatch {
  static constexpr int kMost = 2048 / sizeof(C);

  // The range of the finite elements; later the bounds of the rounded quotient.
  C low[kMost], high[kMost];
  bool special[kMost];  // a NaN or an infinity was seen
  C scale[kMost], inverse[kMost];
  std::int32_t zero_point[kMost];
  std::uint8_t zero_code[kMost];  // low byte of zero_point, added to codes modulo 256
  EncodeMethod method[kMost];
  bool vector;  // the method of all

  math::SegmentParameters<C> parameters(std::int64_t i) const {
    return {scale[i], inverse[i], zero_point[i], method[i] == EncodeMethod::Poisoned};
  }
};

// Whether x / scale, for an element x of the segment, can be had by correcting x * (1 / scale): far
// from where the steps could underflow or overflow. In double it is always a division.
inline bool is_exact(float scale) { return scale >= 0x1p-64f && scale <= 0x1p64f; }
inline bool is_exact(double) { return true; }

// What a loop does to the caches: the input that will be wanted next lies `ahead` bytes further,
// and `stream` writes codes past them (stream_fence() follows).
struct CodeMemory {
  std::int64_t ahead = 0;
  bool stream = false;
};

// The loops of one instruction set, input type and class of codes: a byte each, those of
// consecutive lines code_stride bytes apart.
template <class K, class C>
struct EncodeLoops {
  // Keys become low, high and special.
  void (*values)(const KeyRanges<K>& ranges, std::int64_t count, EncodedBatch<C>& batch);
  // math::segment_parameters, where is_plain().
  bool (*symmetric)(const math::AffineSpec<C>& spec, std::int64_t count, EncodedBatch<C>& batch);
  // Leaves out lines whose method is not Vector; in such columns the codes have no meaning.
  void (*lines)(const void* x, KeyLines lines, SegmentOfLine of, std::uint8_t* codes,
                std::int64_t code_stride, CodeMemory memory, const EncodedBatch<C>& batch);
  void (*columns)(const void* x, KeyLines lines, std::uint8_t* codes, std::int64_t code_stride,
                  CodeMemory memory, const EncodedBatch<C>& batch);
  // The others: those of one segment, of any method.
  void (*any)(const void* x, KeyLines lines, std::uint8_t* codes, std::int64_t code_stride,
              const math::AffineSpec<C>& spec, const math::SegmentParameters<C>& parameters);
  // Two 4-bit codes to a byte.
  void (*pack)(const std::uint8_t* codes, std::int64_t bytes, std::uint8_t* to, bool low_first);
};

// What does not depend on the operands.
template <class T>
struct SegmentEncoding {
  using C = math::Compute<T>;
  math::AffineSpec<C> spec;
  RangeMeasure<Key<T>> measure;
  EncodeLoops<Key<T>, C> loops;
};
template <class T>
SegmentEncoding<T> segment_encoding(const math::AffineSpec<math::Compute<T>>& spec);

// A tensor and what is written of it.
struct EncodeOperands {
  const OperandView &input, &output, &scale, &zero_point;
};

// Quantizes a tensor by the ranges of its own segments. Allocates nothing.
template <class T>
void encode_segments(const SegmentEncoding<T>& encoding, const Shape& shape, const Scope& scope,
                     NibbleOrder order, const EncodeOperands& operands, const Stream& stream);

// Operands that do not fit a cache together are written past it, in lines of at least so many
// codes.
inline constexpr std::int64_t kStreamBytes = 32 << 20, kStreamLine = 1024;
// Codes that wait to be packed: a row of a tile of columns at least.
inline constexpr std::int64_t kStagedCodes = 4096;

// Encodes measured segments: the Use of a SegmentDriver, whose operands are those of
// EncodeOperands. It is for others, too, that encode what they measured.
template <class K, class C>
class SegmentEncoder {
 public:
  using Key = K;
  using Batch = EncodedBatch<C>;
  static constexpr int kOperands = 4;
  static constexpr bool kReadsAgain = true;
  static_assert(kMostSegments<K> <= Batch::kMost && kMostSegments<K> <= kStagedCodes);

  using IndexSpace32 = IndexSpace32Of<kOperands>;
  using Strides = std::array<std::int64_t, kOperands>;
  using Spec = math::AffineSpec<C>;
  enum Operand { kInput, kOutput, kScale, kZeroPoint };

  SegmentEncoder(const Spec& spec, const EncodeLoops<K, C>& loops, NibbleOrder order,
                 const EncodeOperands& operands, std::int64_t elements, bool shares_bytes)
      : recipe_(spec),
        loops_(loops),
        input_(static_cast<const K*>(operands.input.data)),
        output_(static_cast<std::uint8_t*>(operands.output.data)),
        scale_(operands.scale.data),
        zero_point_(static_cast<std::int32_t*>(operands.zero_point.data)),
        low_first_(order == NibbleOrder::LowFirst),
        four_bit_(is_four_bit(spec.output_dtype)),
        shares_bytes_(shares_bytes),
        streams_(elements * static_cast<std::int64_t>(sizeof(K) + 1) > kStreamBytes),
        plain_(spec.convention == Convention::Planq && spec.mode == Mode::Symmetric &&
               spec.quotient != Quotient::Ratio &&
               spec.scale_dtype == (sizeof(C) == 4 ? DType::Float32 : DType::Float64)) {}

  void measured(const KeyRanges<K>& ranges, std::int64_t count, const OffsetsOf<4>& at,
                const Strides& stride, Batch& batch) const {
    loops_.values(ranges, count, batch);
    derive_parameters(batch, count);
    for (std::int64_t i = 0; i < count; ++i) {
      math::store_scale(scale_, at.at[kScale] + i * stride[kScale], batch.scale[i],
                        recipe_.scale_dtype);
      if (zero_point_)
        zero_point_[at.at[kZeroPoint] + i * stride[kZeroPoint]] = batch.zero_point[i];
    }
  }

  void lines(const IndexSpace32& lines, SegmentOfLine of, std::int64_t ahead,
             const Batch& batch) const {
    const bool stream = streams_ && lines.length >= kStreamLine;
    if (!four_bit_)
      return encode_lines(input(lines), keys_of(lines), of, output_ + lines.at.at[kOutput],
                          lines.stride[kOutput], {ahead, stream}, batch);
    staged(lines, [&](const K* x, KeyLines part, std::int64_t first, std::uint8_t* codes,
                      std::int64_t code_stride) {
      const SegmentOfLine part_of = {of.first + static_cast<int>(first) * of.step, of.step};
      encode_lines(x, part, part_of, codes, code_stride, {ahead, false}, batch);
    });
  }

  void columns(const IndexSpace32& lines, std::int64_t ahead, const Batch& batch) const {
    if (!four_bit_)
      return encode_columns(input(lines), keys_of(lines), output_ + lines.at.at[kOutput],
                            lines.stride[kOutput], {ahead, streams_}, batch);
    staged(lines, [&](const K* x, KeyLines part, std::int64_t, std::uint8_t* codes,
                      std::int64_t code_stride) {
      encode_columns(x, part, codes, code_stride, {ahead, false}, batch);
    });
  }

  void groups(const IndexSpace32& line, std::int64_t size, std::int64_t ahead,
              const Batch& batch) const {
    if (shares_bytes_) return groups_within_bytes(line, size, ahead, batch);
    const std::int64_t whole = line.length / size, rest = line.length % size;
    IndexSpace32 part = {line.at, size, whole, {size, size}};
    lines(part, {0, 1}, ahead, batch);
    if (rest == 0) return;
    for (const int operand : {kInput, kOutput}) part.at.at[operand] += whole * size;
    part.length = rest;
    part.count = 1;
    lines(part, {static_cast<int>(whole), 1}, ahead, batch);
  }

  void done() const {
    if (streams_) stream_fence();
  }

 private:
  const K* input(const IndexSpace32& lines) const { return input_ + lines.at.at[kInput]; }
  static KeyLines keys_of(const IndexSpace32& lines) {
    return {lines.length, lines.count, lines.stride[kInput]};
  }

  // ---- parameters --------------------------------------------------------------------------

  void derive_parameters(Batch& batch, std::int64_t count) const {
    bool plain = plain_;
    for (std::int64_t i = 0; i < count; ++i) plain &= !batch.special[i];
    if (plain) {
      batch.vector = loops_.symmetric(recipe_, count, batch);
      return;
    }
    batch.vector = true;
    for (std::int64_t i = 0; i < count; ++i) {
      derive_parameters_of(batch, i);
      batch.vector &= batch.method[i] == EncodeMethod::Vector;
    }
  }

  void derive_parameters_of(Batch& batch, std::int64_t i) const {
    const auto parameters = math::segment_parameters(
        recipe_, math::Range<C>{batch.low[i], batch.high[i], batch.special[i]});
    batch.scale[i] = parameters.scale;
    batch.inverse[i] = parameters.inverse;
    batch.zero_point[i] = parameters.zero_point;
    batch.zero_code[i] = static_cast<std::uint8_t>(parameters.zero_point);
    batch.method[i] = method_of(parameters, batch.high[i], batch.special[i]);
    const C zero = static_cast<C>(parameters.zero_point);
    batch.low[i] = recipe_.q_min - zero;
    batch.high[i] = recipe_.q_max - zero;
  }

  EncodeMethod method_of(const math::SegmentParameters<C>& parameters, C high, bool special) const {
    if (parameters.poisoned) return EncodeMethod::Poisoned;
    const std::int32_t zero = parameters.zero_point;
    if (special || zero > kLargestVectorZeroPoint || zero < -kLargestVectorZeroPoint)
      return EncodeMethod::Scalar;
    // Under a bound of the range a quotient may overflow, and what overflowed cannot be corrected.
    const bool vector =
        recipe_.quotient == Quotient::Divide
            ? is_exact(parameters.scale) && math::is_finite(high * parameters.inverse)
            : math::is_finite(parameters.inverse);
    return vector ? EncodeMethod::Vector : EncodeMethod::Scalar;
  }

  // ---- codes, a byte each, whatever the method of their segments ------------------------------

  void encode_lines(const K* x, KeyLines lines, SegmentOfLine of, std::uint8_t* codes,
                    std::int64_t code_stride, CodeMemory memory, const Batch& batch) const {
    loops_.lines(x, lines, of, codes, code_stride, memory, batch);
    if (batch.vector) return;
    for (std::int64_t i = 0; i < lines.count; ++i) {
      const std::int64_t segment = of.first + i * of.step;
      if (batch.method[segment] != EncodeMethod::Vector)
        loops_.any(x + i * lines.stride, {lines.length, 1, 0}, codes + i * code_stride, 0, recipe_,
                   batch.parameters(segment));
    }
  }

  void encode_columns(const K* x, KeyLines lines, std::uint8_t* codes, std::int64_t code_stride,
                      CodeMemory memory, const Batch& batch) const {
    loops_.columns(x, lines, codes, code_stride, memory, batch);
    if (batch.vector) return;
    for (std::int64_t j = 0; j < lines.length; ++j)
      if (batch.method[j] != EncodeMethod::Vector)
        loops_.any(x + j, {1, lines.count, lines.stride}, codes + j, code_stride, recipe_,
                   batch.parameters(j));
  }

  // ---- two codes to a byte -----------------------------------------------------------------

  // Cuts lines into parts whose codes fit a small buffer: make(input, part, its first line, codes,
  // stride of the codes) fills it, then it goes to the output. Parts of a line begin at even
  // positions, and a line of an odd length is followed by a code 0.
  template <class Make>
  void staged(const IndexSpace32& lines, const Make& make) const {
    alignas(64) std::uint8_t codes[kStagedCodes];
    const std::int64_t code_stride = lines.stride[kOutput];
    const std::int64_t width = std::min(lines.length, kStagedCodes);
    const std::int64_t height = kStagedCodes / (width + width % 2);
    for (std::int64_t i = 0; i < lines.count; i += height) {
      const std::int64_t count = std::min(height, lines.count - i);
      for (std::int64_t j = 0; j < lines.length; j += width) {
        const KeyLines part = {std::min(width, lines.length - j), count, lines.stride[kInput]};
        const std::int64_t stride = part.length + part.length % 2;
        make(input(lines) + i * part.stride + j, part, i, codes, stride);
        if (part.length % 2 == 1)
          for (std::int64_t line = 0; line < count; ++line) codes[line * stride + part.length] = 0;
        // Lines that follow each other in the output go there as one.
        const std::int64_t joined = stride == code_stride ? count : 1;
        for (std::int64_t line = 0; line < count; line += joined) {
          const std::int64_t to = lines.at.at[kOutput] + (i + line) * code_stride + j;
          loops_.pack(codes + line * stride, ((joined - 1) * stride + part.length + 1) / 2,
                      output_ + to / 2, low_first_);
        }
      }
    }
  }

  // The codes are made group by group and packed together.
  void groups_within_bytes(const IndexSpace32& line, std::int64_t size, std::int64_t ahead,
                           const Batch& batch) const {
    const K* const begin = input(line);
    staged(line, [&](const K* x, KeyLines part, std::int64_t, std::uint8_t* codes, std::int64_t) {
      const K* const end = x + part.length;
      for (const K* from = x; from < end;) {
        const std::int64_t group = (from - begin) / size;
        const K* const stop = std::min(end, begin + (group + 1) * size);
        encode_lines(from, {stop - from, 1, 0}, {static_cast<int>(group), 1}, codes + (from - x), 0,
                     {ahead, false}, batch);
        from = stop;
      }
    });
  }

  const Spec& recipe_;
  const EncodeLoops<K, C>& loops_;
  const K* const input_;
  std::uint8_t* const output_;
  void* const scale_;
  std::int32_t* const zero_point_;
  const bool low_first_, four_bit_, shares_bytes_, streams_, plain_;
};

}  // namespace planq::host
