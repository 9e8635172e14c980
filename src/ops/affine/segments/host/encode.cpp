#include "ops/affine/segments/host/encode.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "ops/affine/float8_code.h"
#include "ops/affine/ranges/host.h"

#define PLANQ_LOOPS "ops/affine/segments/host/encode_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {
namespace {

// Needs no speed: it runs for segments with NaN, infinities or extreme scales.
template <class T>
void encode_any(const void* from, KeyLines lines, std::uint8_t* codes, std::int64_t code_stride,
                const math::AffineSpec<math::Compute<T>>& spec,
                const math::SegmentParameters<math::Compute<T>>& parameters) {
  for (std::int64_t i = 0; i < lines.count; ++i) {
    const T* line = static_cast<const T*>(from) + i * lines.stride;
    std::uint8_t* out = codes + i * code_stride;
    if (parameters.poisoned) {
      std::memset(out, math::code_of(math::Compute<T>{0}, spec, parameters),
                  static_cast<std::size_t>(lines.length));
    } else {
      for (std::int64_t j = 0; j < lines.length; ++j)
        out[j] = math::code_of(math::widen(line[j]), spec, parameters);
    }
  }
}

template <class T>
void choose_level(SegmentEncoding<T>& encoding) {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::choose_loops<T>(encoding.loops, encoding.spec);
  if (level == Level::Avx2) return avx2::choose_loops<T>(encoding.loops, encoding.spec);
#endif
  baseline::choose_loops<T>(encoding.loops, encoding.spec);
}

// Small tiles beside each other, and groups whose codes share bytes.
bool cuts_lines(const Shape& shape, const Scope& scope, std::int64_t element_bytes, bool shares) {
  if (shape.elements() == 0) return false;
  if (shares) return true;
  if (scope.kind != ScopeKind::Block || scope.size >= shape.last()) return false;
  const std::int64_t rows = std::min(scope.rows, shape[shape.rank - 2]);
  return rows * scope.size * element_bytes <= kTileBytes;
}

}  // namespace

template <class T>
SegmentEncoding<T> segment_encoding(const math::AffineSpec<math::Compute<T>>& spec) {
  const bool signs = spec.mode == Mode::Asymmetric;
  SegmentEncoding<T> encoding{spec,
                              {range_loops<T>(signs, false), range_loops<T>(signs, true), signs,
                               spec.nonfinite == NonFinite::Saturate, kInfinityKey<T>},
                              {}};
  choose_level(encoding);
  encoding.loops.any = encode_any<T>;
  return encoding;
}

template <class T>
void encode_segments(const SegmentEncoding<T>& encoding, const Shape& shape, const Scope& scope,
                     NibbleOrder order, const EncodeOperands& operands, const Stream& stream) {
  using Encoder = SegmentEncoder<Key<T>, math::Compute<T>>;
  const DType codes = encoding.spec.output_dtype;
  const bool four_bit = is_four_bit(codes);
  const bool shares = shares_bytes(shape, scope, codes);
  const Encoder encoder(encoding.spec, encoding.loops, order, operands, shape.elements(), shares);
  const SegmentDriver<Encoder> driver(encoder, encoding.measure, operands.input.data,
                                      stream.threads);
  const OperandView* const zero_point = operands.zero_point.data ? &operands.zero_point : nullptr;
  const SegmentOperand views[] = {{&operands.input},
                                  {&operands.output, false, four_bit},
                                  {&operands.scale, true},
                                  {zero_point, true}};
  if (!cuts_lines(shape, scope, sizeof(T), shares))
    return for_each_box(shape, scope, views, LineKind::Joined,
                        [&](const Segments& box) { driver.run(box); });
  const int last = shape.rank - 1;
  Scope whole_lines = scope;
  whole_lines.size = shape.last();
  for_each_box(shape, whole_lines, views, LineKind::Rows, [&](const Segments& box) {
    driver.run_groups(box, scope.size,
                      {0, 0, operands.scale.strides[last], operands.zero_point.strides[last]});
  });
}

#define PLANQ_ENCODES(T)                                                                   \
  template SegmentEncoding<T> segment_encoding(const math::AffineSpec<math::Compute<T>>&); \
  template void encode_segments(const SegmentEncoding<T>&, const Shape&, const Scope&,     \
                                NibbleOrder, const EncodeOperands&, const Stream&)
PLANQ_ENCODES(math::Half);
PLANQ_ENCODES(math::Bfloat16);
PLANQ_ENCODES(float);
PLANQ_ENCODES(double);

}  // namespace planq::host
