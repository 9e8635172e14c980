// Rows of results as codes: how kernels of other operators end that make whole rows. The bits are
// those of dynamic_range_quantize and of quantize, for scales of rows, of groups along them, or of
// a tensor where they are given. Results have 16 bits or are float32. Formats of groups, MX and
// NVFP4, are made of 16 bits alone: float32 of them is rare.
//
// A team of threads holds a row in registers as vectors (cuda/held_columns.cuh), or makes its
// results again whenever it asks for them, by single elements.
#pragma once

#include <cstdint>

#include "cuda/held_columns.cuh"
#include "cuda/launch.cuh"
#include "ops/affine/affine.h"
#include "ops/affine/format_codes.cuh"
#include "ops/affine/quantized_output.h"
#include "ops/affine/segments/segments.cuh"
#include "ops/affine/segments/teams.cuh"

namespace planq::affine {

// Operands of codes, as positions in the space of rows.
enum RowOperand : int { kFloatingRow, kCodeRow, kScaleRow, kZeroPointRow };

constexpr bool is_format(Convention convention) { return !math::is_affine(convention); }

// Rows whose codes are asked for most often have code of their own, which is shorter: a small
// launch waits for every instruction that it fetches. Int8, E4M3: measured rows, symmetric, DIVIDE,
// scales in float32, PROPAGATE, all codes of the type but the lowest of int8. E4M3Groups: the same
// of measured groups. Int8Groups: int8 of measured groups of 32 by RATIO, as products with GGUF's
// weights take them, of rows along one axis.
enum class RowKind { Any, Int8, E4M3, E4M3Groups, Int8Groups };
inline constexpr int kInt8Group = 32;

// Whether rows of T have such code: products take codes of Int8Groups beside float32 alone, and
// those of the other kinds beside 16 bits.
template <class T>
constexpr bool has_kind(RowKind kind) {
  return kind == RowKind::Any || (kind == RowKind::Int8Groups) == (sizeof(T) == 4);
}
template <RowKind kKind>
using KindConstant = std::integral_constant<RowKind, kKind>;
// Calls use(KindConstant) for a kind that rows of T have.
template <class T, class Use>
auto by_kind(RowKind kind, const Use& use) {
  using enum RowKind;
  if constexpr (has_kind<T>(Int8Groups)) {
    if (kind == Int8Groups) return use(KindConstant<Int8Groups>{});
  } else {
    if (kind == Int8) return use(KindConstant<Int8>{});
    if (kind == E4M3) return use(KindConstant<E4M3>{});
    if (kind == E4M3Groups) return use(KindConstant<E4M3Groups>{});
  }
  return use(KindConstant<Any>{});
}

// What a kernel knows of its spec.
template <RowKind kKind>
PLANQ_HD constexpr math::AffineSpec<float> known_rows(const math::AffineSpec<float>& given) {
  if constexpr (kKind == RowKind::Any) return given;
  constexpr bool kInGroups = kKind == RowKind::Int8Groups;
  constexpr bool kInt8 = kKind == RowKind::Int8 || kInGroups;
  constexpr float kMost = kInt8 ? 127.0f : 448.0f;
  return {.q_min = -kMost,
          .q_max = kMost,
          .steps = 2 * kMost,
          .q_low = kInt8 ? -127 : 0,
          .q_high = kInt8 ? 127 : 0,
          .output_dtype = kInt8 ? DType::Int8 : DType::Float8E4M3FN,
          .scale_dtype = DType::Float32,
          .mode = Mode::Symmetric,
          .quotient = kInGroups ? Quotient::Ratio : Quotient::Divide,
          .nonfinite = NonFinite::Propagate,
          .include_zero = given.include_zero,
          .convention = Convention::Planq,
          .scale_ub = given.scale_ub};
}

// What is the same for all rows.
template <class T>
struct RowCodes {
  math::AffineSpec<float> spec;
  IndexSpace rows;
  T* floating;  // null: results before they are codes are not wanted
  std::uint8_t* output;
  void* scale;
  std::int32_t* zero_point;
  const float* tensor_factor;                // NVFP4
  std::int64_t scale_step, zero_point_step;  // to those of the next group of a row
  int length, group;                         // elements of a row, and of those that share a scale
  bool given;                                // one scale, of the tensor
  NibbleOrder order;

  __device__ __forceinline__ bool in_groups() const { return group < length; }
  __device__ __forceinline__ bool measures_rows() const {
    return !given && !in_groups() && !in_format();
  }
  __device__ __forceinline__ bool in_format() const { return is_format(spec.convention); }
};

// --- Kinds of codes, known when the kernel runs --------------------------------------------------

template <Codes kCodes>
using CodesConstant = std::integral_constant<Codes, kCodes>;

// Calls use(CodesConstant) for the codes of a kind, or of a type. One copy of what follows is
// enough: rows are bound by memory.
template <RowKind kKind, class Use>
__device__ __forceinline__ void by_codes(DType output, const Use& use) {
  if constexpr (kKind == RowKind::Int8 || kKind == RowKind::Int8Groups)
    use(CodesConstant<Codes::Byte>{});
  else if constexpr (kKind != RowKind::Any)
    use(CodesConstant<Codes::E4M3>{});
  else if (output == DType::Float8E4M3FN)
    use(CodesConstant<Codes::E4M3>{});
  else if (output == DType::Float8E5M2)
    use(CodesConstant<Codes::E5M2>{});
  else if (output == DType::Int4 || output == DType::UInt4)
    use(CodesConstant<Codes::Nibble>{});
  else
    use(CodesConstant<Codes::Byte>{});
}

// The same with a format of groups.
template <class Use>
__device__ __forceinline__ void by_format(Convention convention, DType output, const Use& use) {
  if (convention == Convention::Nvfp4)
    use(Nvfp4{});
  else if (output == DType::Float8E4M3FN)
    use(MxFp8E4M3{});
  else if (output == DType::Float8E5M2)
    use(MxFp8E5M2{});
  else
    use(MxFp4{});
}

// --- Parameters ----------------------------------------------------------------------------------

// What elements become codes by, and whether the fast way gives the bits.
struct RowParameters {
  math::SegmentParameters<float> own;
  bool fast;
};

template <class T>
__device__ __forceinline__ RowParameters measured_parameters(const math::AffineSpec<float>& spec,
                                                             const KeyRange<T>& key_range,
                                                             bool special) {
  const math::Range<float> range = range_of(key_range, spec.mode == Mode::Symmetric, special);
  const auto own = math::segment_parameters(spec, range);
  return {own, is_fast(spec, own, range)};
}

template <class T>
__device__ __forceinline__ math::SegmentParameters<float> given_parameters(
    const RowCodes<T>& codes) {
  const auto scale = math::load_scale<float>(codes.scale, 0, codes.spec.scale_dtype);
  return math::given_parameters(codes.spec, scale, codes.zero_point ? *codes.zero_point : 0);
}

// is_fast() for given parameters, which may be anything, and elements up to a magnitude.
__device__ __forceinline__ bool is_fast_given(const math::AffineSpec<float>& spec,
                                              const math::SegmentParameters<float>& own, float peak,
                                              bool special) {
  const math::Range<float> range = {0.0f, peak, special};
  return is_fast(spec, own, range) && fabsf(peak * own.inverse) <= kLargeQuotient<float> &&
         math::is_finite(own.scale);
}

template <class T>
__device__ __forceinline__ void store_row_parameters(const RowCodes<T>& codes, const Offsets& at,
                                                     const math::AffineSpec<float>& spec,
                                                     std::int64_t segment,
                                                     const math::SegmentParameters<float>& own) {
  store_scale(codes.scale, at.at[kScaleRow] + segment * codes.scale_step, own.scale,
              spec.scale_dtype);
  if (spec.mode == Mode::Asymmetric)
    cuda::store_once(codes.zero_point + at.at[kZeroPointRow] + segment * codes.zero_point_step,
                     own.zero_point);
}

// --- Rows that are held --------------------------------------------------------------------------

// The codes of a vector element by element, where the fast way would not do.
template <class T, Codes kCodes>
__device__ __noinline__ cuda::Word<kWordBytes<T, kCodes>> slow_codes(
    uint4 v, const math::AffineSpec<float>& spec, math::SegmentParameters<float> own, bool given,
    NibbleOrder order) {
  T elements[kPerVector<T>];
  memcpy(elements, &v, sizeof v);
  std::uint32_t each[kPerVector<T>];
#pragma unroll 1
  for (int i = 0; i < kPerVector<T>; ++i) {
    const float x = math::widen(elements[i]);
    each[i] = given ? math::given_code(x, spec, own) : code_of<kCodes>(x, spec, own);
  }
  return cuda::pack<kCodes == Codes::Nibble ? Codes::Nibble : Codes::Byte>(each, order);
}

// The codes of a vector by the fast way, of any kind or of one that is known, whose quotients never
// are beyond the bounds.
template <RowKind kKind, class T, Codes kCodes>
__device__ __forceinline__ cuda::Word<kWordBytes<T, kCodes>> fast_codes(
    const uint4& v, const math::AffineSpec<float>& spec, const math::SegmentParameters<float>& own,
    NibbleOrder order) {
  const Numbers<float> numbers(own, spec);
  if constexpr (kKind == RowKind::Any)
    return encode_by_any_rule<T, kCodes>(v, numbers, spec, order);
  else
    return encode<T, kCodes, false, true, Bounds::None>(v, numbers, spec, order);
}

// Stores the codes of a vector that begins at this column. kFast: it is known that the fast way
// gives the bits.
template <RowKind kKind, bool kFast, class T>
__device__ __forceinline__ void store_codes(const RowCodes<T>& codes, const Offsets& at, int column,
                                            const uint4& v, const RowParameters& parameters) {
  const math::AffineSpec<float> spec = known_rows<kKind>(codes.spec);
  by_codes<kKind>(spec.output_dtype, [&](auto kind) {
    constexpr Codes kCodes = kind;
    const auto word =
        kFast || parameters.fast
            ? fast_codes<kKind, T, kCodes>(v, spec, parameters.own, codes.order)
            : slow_codes<T, kCodes>(v, codes.spec, parameters.own, codes.given, codes.order);
    cuda::store_word<kWordBytes<T, kCodes>>(
        codes.output + at.at[kCodeRow] + column / kPerByte<kCodes>, word);
  });
}

// The threads that hold a row, and their range: a warp, a block, or a cluster of blocks.
struct RowTeam {
  int lanes;    // of the team in this block
  int cluster;  // blocks

  template <class T>
  __device__ __forceinline__ KeyRange<T> range(int round, const KeyRange<T>& own,
                                               bool symmetric) const {
    if (lanes == cuda::kWarp && cluster == 1) return warp_key_range(own, symmetric);
    return team_key_range<Team::Block, T>(round, own, cluster, symmetric);
  }
  __device__ __forceinline__ bool leads() const {
    return static_cast<int>(threadIdx.x) % lanes == 0 &&
           (cluster == 1 || cuda::cluster_rank() == 0);
  }
};

// The range of a group, by each of its lanes, which are neighbours in a warp.
template <class T>
__device__ __forceinline__ RowParameters group_parameters(const math::AffineSpec<float>& spec,
                                                          int group, const uint4& v, bool active) {
  const bool symmetric = spec.mode == Mode::Symmetric;
  const int width = group / kPerVector<T>;
  const uint4 vectors[1] = {v};
  const bool has[1] = {active};
  auto key_range = subwarp_key_range(key_range_of<T>(vectors, has, symmetric), width, symmetric);
  const bool special = key_range.special();
  if (spec.nonfinite == NonFinite::Saturate && __any_sync(cuda::kAllLanes, special)) {
    Collector<T> finite;
    finite.add(vectors, has, symmetric, true);
    key_range = subwarp_key_range(finite.key_range(), width, symmetric);
  }
  return measured_parameters(spec, key_range, special);
}

// The same for a whole row.
template <class T, int kPasses>
__device__ __forceinline__ RowParameters row_parameters(const math::AffineSpec<float>& spec,
                                                        const RowTeam& team,
                                                        const uint4 (&v)[kPasses],
                                                        const bool (&has)[kPasses]) {
  const bool symmetric = spec.mode == Mode::Symmetric;
  auto key_range = team.range(0, key_range_of<T>(v, has, symmetric), symmetric);
  const bool special = key_range.special();
  if (spec.nonfinite == NonFinite::Saturate && special) {
    Collector<T> finite;
    finite.add(v, has, symmetric, true);
    key_range = team.range(1, finite.key_range(), symmetric);
  }
  return measured_parameters(spec, key_range, special);
}

template <class T>
__device__ __forceinline__ RowParameters vector_parameters(
    const RowCodes<T>& codes, const math::SegmentParameters<float>& own, const uint4& v) {
  const uint4 vectors[1] = {v};
  const bool has[1] = {true};
  const auto key_range = key_range_of<T>(vectors, has, true);
  const math::Range<float> range = range_of(key_range, true, key_range.special());
  return {own, is_fast_given(codes.spec, own, range.high, range.special)};
}

template <class T>
inline constexpr bool kHasFormats = sizeof(T) == 2;

template <class T, class F>
__device__ __forceinline__ void store_format(const RowCodes<T>& codes, const Offsets& at,
                                             int column, const uint4& v, bool active) {
  static_assert(kPerVector<T> == kFormatEach);
  FormatElements<T> x;
  x.v[0] = v;
  const std::uint32_t peak = format_peak<F>(active ? x.peak() : 0);
  const float factor = F::kMx ? 0.0f : *codes.tensor_factor;
  const math::FormatScale scale =
      F::scale_of(peak, codes.spec.convention == Convention::MxRoundUp, factor);
  if (!active) return;
  const auto word = format_codes<T, F>(x, scale, codes.order);
  cuda::store_word<kFormatBytes<F>>(
      codes.output + at.at[kCodeRow] + (F::kFourBit ? column / 2 : column), word);
  if (column % F::kGroup == 0)
    cuda::store_once(static_cast<std::uint8_t*>(codes.scale) + at.at[kScaleRow] +
                         column / F::kGroup * codes.scale_step,
                     scale.stored);
}

// Measures the group that a vector is in, and stores what it is measured as. All lanes call this.
template <class T>
__device__ __forceinline__ RowParameters store_group(const RowCodes<T>& codes, const Offsets& at,
                                                     const math::AffineSpec<float>& spec,
                                                     int column, const uint4& v, bool active) {
  const RowParameters parameters = group_parameters<T>(spec, codes.group, v, active);
  const int segment = column >> __popc(codes.group - 1);  // groups of whole lanes: 2^n
  if (active && column == segment * codes.group)
    store_row_parameters(codes, at, spec, segment, parameters.own);
  return parameters;
}

// The codes and the scale of a vector of kind Int8Groups whose group has such a largest magnitude,
// where the fast way would not do.
struct UnusualCodes {
  std::uint32_t word;
  float scale;
};
__device__ __noinline__ inline UnusualCodes unusual_codes(uint4 v, std::int32_t peak) {
  const math::AffineSpec<float> spec = known_rows<RowKind::Int8Groups>({});
  KeyRange<float> key_range;
  key_range.high = peak;
  const auto own = measured_parameters<float>(spec, key_range, key_range.special()).own;
  std::uint32_t each[kPerVector<float>];
#pragma unroll
  for (int i = 0; i < kPerVector<float>; ++i)
    each[i] = math::integer_code_of(element_of<float>(v, i), spec, own);
  return {cuda::pack<Codes::Byte>(each, NibbleOrder::LowFirst),
          own.poisoned ? math::canonical_nan<float>() : own.scale};
}

// Measures the group that a vector of kind Int8Groups is in, and stores its codes and, by the first
// of its lanes, the scale. All lanes call this. Quotients are exact by the scheme of cuda/codes.cuh
// while peaks are ordinary: zeros stand for a peak whose scale and factor are 1.
__device__ __forceinline__ void store_int8_group(const RowCodes<float>& codes, const Offsets& at,
                                                 int column, const uint4& v, bool active) {
  constexpr math::AffineSpec<float> kSpec = known_rows<RowKind::Int8Groups>({});
  constexpr float kMost = kSpec.q_max;
  Collector<float> collector;
  collector.add_magnitudes(v);
  const std::int32_t key =
      subwarp_key_range(collector.key_range(), kInt8Group / kPerVector<float>, true).high;
  const float peak = __int_as_float(key), span = key == 0 ? kMost : peak;
  if (!active) return;
  float scale;
  std::uint32_t word;
  if (span >= 0x1p-60f && span <= 0x1p+60f) {
    scale = quotient<true>(span, kMost, 1 / kMost);
    const float factor = quotient<true>(kMost, span, inverse_of(span));
    const Numbers<float> numbers(scale, factor, 0, kSpec);
    word = encode<float, Codes::Byte, false, false, Bounds::None>(v, numbers, kSpec, codes.order);
  } else {
    const UnusualCodes unusual = unusual_codes(v, key);
    scale = unusual.scale, word = unusual.word;
  }
  cuda::store_word<kPerVector<float>>(codes.output + at.at[kCodeRow] + column, word);
  if (column % kInt8Group == 0)
    cuda::store_once(static_cast<float*>(codes.scale) + at.at[kScaleRow] +
                         column / kInt8Group * codes.scale_step,
                     scale);
}

// Where a row begins.
template <RowKind kKind, class T>
__device__ __forceinline__ Offsets code_places(const RowCodes<T>& codes, std::int64_t row) {
  if constexpr (kKind == RowKind::Int8Groups)
    return cuda::offsets_of_axis(codes.rows.axes[0], row);
  else
    return cuda::row_offsets(codes.rows, row);
}

// Stores a row that a team holds. All of the team's threads call this.
template <RowKind kKind, class T, int kPasses>
__device__ __forceinline__ void store_held_row(
    const RowCodes<T>& codes, std::int64_t row, const RowTeam& team,
    const cuda::HeldColumns<kPasses, kPerVector<T>>& columns, uint4 (&v)[kPasses]) {
  const Offsets at = code_places<kKind>(codes, row);
  bool has[kPasses];
#pragma unroll
  for (int p = 0; p < kPasses; ++p) {
    has[p] = columns.has(p);
    if (has[p] && codes.floating)
      cuda::store_vector(codes.floating + at.at[kFloatingRow] + columns.at(p), v[p]);
  }
  if constexpr (kKind == RowKind::Int8Groups) {
#pragma unroll
    for (int p = 0; p < kPasses; ++p) store_int8_group(codes, at, columns.at(p), v[p], has[p]);
    return;
  }
  const math::AffineSpec<float> spec = known_rows<kKind>(codes.spec);
  if constexpr (kKind == RowKind::E4M3Groups) {
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
      const auto parameters = store_group(codes, at, spec, columns.at(p), v[p], has[p]);
      if (has[p]) store_codes<kKind, false>(codes, at, columns.at(p), v[p], parameters);
    }
    return;
  }
  RowParameters parameters{};
  if (kKind != RowKind::Any || codes.measures_rows()) {
    parameters = row_parameters<T>(spec, team, v, has);
    if (team.leads()) store_row_parameters(codes, at, spec, 0, parameters.own);
  } else if (codes.given) {
    parameters.own = given_parameters(codes);
  }
  if constexpr (kKind != RowKind::Any) {
    if (parameters.fast) {
#pragma unroll
      for (int p = 0; p < kPasses; ++p)
        if (has[p]) store_codes<kKind, true>(codes, at, columns.at(p), v[p], parameters);
      return;
    }
  }
  int column = columns.at(0);
#pragma unroll 1
  for (int p = 0; p < kPasses; ++p, column += columns.kStep, move_down(v), move_down(has)) {
    if constexpr (kKind == RowKind::Any) {
      if constexpr (kHasFormats<T>) {
        if (codes.in_format()) {
          by_format(spec.convention, spec.output_dtype, [&](auto format) {
            store_format<T, decltype(format)>(codes, at, column, v[0], has[0]);
          });
          continue;
        }
      }
      if (codes.given) {
        parameters = vector_parameters(codes, parameters.own, v[0]);
      } else if (codes.in_groups()) {
        parameters = store_group(codes, at, spec, column, v[0], has[0]);
      }
    }
    if (has[0]) store_codes<kKind, false>(codes, at, column, v[0], parameters);
  }
}

// --- Rows that are made again, by single elements ------------------------------------------------

// The threads that share a segment: a block has a row's, or a warp has a group's.
struct SegmentTeam {
  int rank, size;

  __device__ __forceinline__ explicit SegmentTeam(bool is_block)
      : rank(static_cast<int>(threadIdx.x) %
             (is_block ? static_cast<int>(blockDim.x) : cuda::kWarp)),
        size(is_block ? static_cast<int>(blockDim.x) : cuda::kWarp) {}

  template <class T>
  __device__ __forceinline__ KeyRange<T> range(int round, const KeyRange<T>& own,
                                               bool symmetric) const {
    if (size == cuda::kWarp) return warp_key_range(own, symmetric);
    return team_key_range<Team::Block, T>(round, own, 1, symmetric);
  }
};

template <class T, class Result>
__device__ __forceinline__ KeyRange<T> walk_results(const Result& result, int first, int last,
                                                    const SegmentTeam& team, bool symmetric,
                                                    bool finite) {
  KeyRange<T> key_range;
#pragma unroll 1
  for (int i = first + team.rank; i < last; i += team.size)
    add_element(key_range, result(i), symmetric, finite);
  return key_range;
}

// The codes of a segment by code(element), a byte after another. It begins with a byte.
template <class T, class Result, class Code>
__device__ __forceinline__ void walk_bytes(const RowCodes<T>& codes, const Offsets& at,
                                           const Result& result, int first, int last,
                                           const SegmentTeam& team, const Code& code) {
  const int per_byte = is_four_bit(codes.spec.output_dtype) ? 2 : 1;
#pragma unroll 1
  for (int i = first + team.rank * per_byte; i < last; i += team.size * per_byte) {
    std::uint8_t byte = code(math::widen(result(i)));
    if (per_byte == 2)
      byte = math::pack_nibbles(byte, i + 1 < last ? code(math::widen(result(i + 1))) : 0,
                                codes.order);
    codes.output[at.at[kCodeRow] + i / per_byte] = byte;
  }
}

template <class T, class F, class Result>
__device__ __forceinline__ void store_format_group(const RowCodes<T>& codes, const Offsets& at,
                                                   const Result& result, int segment, int first,
                                                   int last, const SegmentTeam& team) {
  const auto key_range =
      warp_key_range(walk_results<T>(result, first, last, team, true, false), true);
  const std::uint32_t peak = __float_as_uint(value_of<T>(max(key_range.high, 0)));
  const float factor = F::kMx ? 0.0f : *codes.tensor_factor;
  const math::FormatScale scale =
      F::scale_of(peak, codes.spec.convention == Convention::MxRoundUp, factor);
  if (team.rank == 0)
    static_cast<std::uint8_t*>(codes.scale)[at.at[kScaleRow] + segment * codes.scale_step] =
        scale.stored;
  walk_bytes(codes, at, result, first, last, team,
             [&](float x) { return math::group_code<F::kCode>(x, scale); });
}

template <class T, class Result>
__device__ __forceinline__ void store_segment(const RowCodes<T>& codes, const Offsets& at,
                                              const Result& result, int segment, int first,
                                              int last, const SegmentTeam& team) {
  const math::AffineSpec<float>& spec = codes.spec;
  if (codes.given) {
    const auto own = given_parameters(codes);
    return walk_bytes(codes, at, result, first, last, team,
                      [&](float x) { return math::given_code(x, spec, own); });
  }
  if constexpr (kHasFormats<T>)
    if (codes.in_format())
      return by_format(spec.convention, spec.output_dtype, [&](auto format) {
        store_format_group<T, decltype(format)>(codes, at, result, segment, first, last, team);
      });
  const bool symmetric = spec.mode == Mode::Symmetric;
  const auto range_by = [&](int round, bool finite) {
    return team.range(round, walk_results<T>(result, first, last, team, symmetric, finite),
                      symmetric);
  };
  KeyRange<T> key_range = range_by(0, false);
  const bool special = key_range.special();
  if (special && spec.nonfinite == NonFinite::Saturate) key_range = range_by(1, true);
  const auto own = measured_parameters(spec, key_range, special).own;
  if (team.rank == 0) store_row_parameters(codes, at, spec, segment, own);
  walk_bytes(codes, at, result, first, last, team,
             [&](float x) { return math::code_of(x, spec, own); });
}

// Stores a row of the results result(column), of type T, by a block. All its threads call this.
template <class T, class Result>
__device__ __forceinline__ void store_scattered_row(const RowCodes<T>& codes, std::int64_t row,
                                                    const Result& result) {
  const Offsets at = cuda::row_offsets(codes.rows, row);
  if (codes.floating)
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < codes.length; i += static_cast<int>(blockDim.x))
      codes.floating[at.at[kFloatingRow] + i] = result(i);
  const bool whole = codes.given || codes.measures_rows();
  const SegmentTeam team(whole);
  if (whole) return store_segment(codes, at, result, 0, 0, codes.length, team);
  const int warps = static_cast<int>(blockDim.x) / cuda::kWarp;
#pragma unroll 1
  for (int segment = static_cast<int>(threadIdx.x) / cuda::kWarp;
       segment * codes.group < codes.length; segment += warps)
    store_segment(codes, at, result, segment, segment * codes.group,
                  min((segment + 1) * codes.group, codes.length), team);
}

// --- From a call ---------------------------------------------------------------------------------

// Elements that share a scale, of a row.
inline std::int64_t group_of(const Shape& shape, const QuantizedOutput& how) {
  const bool grouped = how.scope.kind == ScopeKind::Group && !how.scale_given;
  return grouped && how.scope.size < shape.last() ? how.scope.size : shape.last();
}

// What a kernel that makes codes of its own rows of T does not take.
template <DType kType>
Reason rejects_row_codes(const Shape& shape, DType output_dtype, const QuantizedOutput& how) {
  const auto refuse = [](const auto&... pieces) {
    return Reason::refuse(ReasonKind::Feature, pieces...);
  };
  if (!is_code(output_dtype))
    return Reason::refuse(ReasonKind::DType, "computes codes, not ", name_of(output_dtype));
  const Reason reason = expect(ReasonKind::DType, "norm_dtype", kType, how.norm_dtype);
  if (!reason.accepted()) return reason;
  if (is_format(how.convention) && !kHasFormats<math::Stored<kType>>)
    return refuse("makes no codes by the convention ", name_of(how.convention), " of ",
                  name_of(kType));
  if (how.scale_given && how.scope.kind != ScopeKind::Tensor)
    return refuse("takes the scale of a tensor, not those of a ", name_of(how.scope.kind));
  const std::int64_t group = group_of(shape, how);
  if (is_four_bit(output_dtype) && group < shape.last() && group % 2 != 0)
    return refuse("groups of ", group, " four-bit codes begin inside a byte");
  return Reason::accept();
}

// Whether threads that hold rows can store them: vectors, and groups of whole lanes.
template <class T>
bool stores_held(const Shape& shape, DType output_dtype, const QuantizedOutput& how,
                 const CodeOperands& operands) {
  const std::int64_t length = shape.last(), group = group_of(shape, how);
  const std::int64_t lanes = group / kPerVector<T>;
  const bool whole = group == length || (length % group == 0 && group % kPerVector<T> == 0 &&
                                         lanes <= cuda::kWarp && (lanes & (lanes - 1)) == 0);
  const bool format = !is_format(how.convention) || length % how.scope.size == 0;
  const int per_byte = is_four_bit(output_dtype) ? 2 : 1;
  return whole && format && length > 0 && length % kPerVector<T> == 0 &&
         cuda::has_whole_words(operands.output, length / per_byte, 1, kPerVector<T> / per_byte) &&
         (!operands.floating.data ||
          cuda::has_whole_words(operands.floating, length * static_cast<int>(sizeof(T)), sizeof(T),
                                cuda::kVectorBytes));
}

inline IndexSpace rows_of_codes(const Shape& shape, const QuantizedOutput& how,
                                const CodeOperands& operands) {
  IndexSpace rows;
  for (int i = 0; i + 1 < shape.rank; ++i) {
    Axis axis;
    axis.extent = shape[i];
    axis.stride[kFloatingRow] = operands.floating.data ? operands.floating.strides[i] : 0;
    axis.stride[kCodeRow] = operands.output.strides[i];
    if (!how.scale_given) {
      axis.stride[kScaleRow] = operands.scale.strides[i];
      axis.stride[kZeroPointRow] = operands.zero_point.data ? operands.zero_point.strides[i] : 0;
    }
    rows.append(axis);
  }
  rows.merge();
  return rows;
}

template <class T>
RowCodes<T> row_codes(const Shape& shape, DType output_dtype, const QuantizedOutput& how,
                      const CodeOperands& operands) {
  const int last = shape.rank - 1;
  const bool grouped = how.scope.kind == ScopeKind::Group && !how.scale_given;
  return {math::affine_spec<float>(output_dtype, how.scale_dtype, how.mode, how.quotient,
                                   how.nonfinite, how.include_zero, how.q_min, how.q_max,
                                   how.convention, how.scale_ub),
          rows_of_codes(shape, how, operands),
          static_cast<T*>(operands.floating.data),
          static_cast<std::uint8_t*>(operands.output.data),
          operands.scale.data,
          static_cast<std::int32_t*>(operands.zero_point.data),
          static_cast<const float*>(operands.inverse_tensor_scale.data),
          grouped ? operands.scale.strides[last] : 0,
          grouped && operands.zero_point.data ? operands.zero_point.strides[last] : 0,
          static_cast<int>(shape.last()),
          static_cast<int>(group_of(shape, how)),
          how.scale_given,
          how.nibble_order};
}

// The kind of rows, for kernels of their own.
template <class T>
RowKind kind_of(const RowCodes<T>& codes) {
  const auto is_all_of = [&](const math::AffineSpec<float>& known) {
    const math::AffineSpec<float>& own = codes.spec;
    return own.q_min == known.q_min && own.q_max == known.q_max &&
           own.output_dtype == known.output_dtype && own.scale_dtype == known.scale_dtype &&
           own.mode == known.mode && own.quotient == known.quotient &&
           own.nonfinite == known.nonfinite && own.convention == known.convention;
  };
  const bool grouped = codes.group < codes.length;
  if (codes.given) return RowKind::Any;
  if constexpr (has_kind<T>(RowKind::Int8Groups)) {
    const bool known = codes.group == kInt8Group && cuda::is_one_axis(codes.rows) &&
                       is_all_of(known_rows<RowKind::Int8Groups>(codes.spec));
    return known ? RowKind::Int8Groups : RowKind::Any;
  }
  if (!grouped && is_all_of(known_rows<RowKind::Int8>(codes.spec))) return RowKind::Int8;
  if (!is_all_of(known_rows<RowKind::E4M3>(codes.spec))) return RowKind::Any;
  return grouped ? RowKind::E4M3Groups : RowKind::E4M3;
}

// What a launch needs: the arguments, and whether threads can hold the rows.
template <class T>
struct RowCodesOf {
  RowCodes<T> args;
  bool held;

  RowCodesOf(const Shape& shape, DType output_dtype, const QuantizedOutput& how,
             const CodeOperands& operands)
      : args(row_codes<T>(shape, output_dtype, how, operands)),
        held(stores_held<T>(shape, output_dtype, how, operands)) {}
};

}  // namespace planq::affine
