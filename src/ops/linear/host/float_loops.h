// Sums of floating products for one instruction set: see host/float.cpp. No include guard:
// see host/instruction_sets.h.
//
// Columns of the weights lie side by side in a panel, a slice of k at a time, and rows of the input
// walk it, in float32, which holds every factor exactly. What a tensor core does to a group follows
// in two passes. The first finds the largest exponent E of the group's products, of every column at
// once. The second adds up trunc(product * 2^(fraction - E)): a product of two factors of at most
// 11 bits is exact in float32, and so is a power of two times it, which is less than 2^27 and is
// truncated by its conversion to int32. Where that is not so, below float32's range another body
// does it in two steps, and above and where a number is none math::tensor_core_step does the group,
// one output after another.

#include "ops/linear/host/number_loops.h"
#include "ops/linear/host/weight_only_loops.h"

namespace planq::host::PLANQ_LEVEL::floating {

using linear::Epilogue;
using linear::Gemm;
using linear::GemmOperand;

// Numbers that the instruction set computes at once. Vectors of other types are read and written as
// what they are made of.
typedef float Floats __attribute__((vector_size(PLANQ_VECTOR_BYTES), may_alias));
typedef std::int32_t Ints __attribute__((vector_size(PLANQ_VECTOR_BYTES), may_alias));
typedef std::uint32_t Words __attribute__((vector_size(PLANQ_VECTOR_BYTES), may_alias));
typedef std::int16_t Shorts __attribute__((vector_size(PLANQ_VECTOR_BYTES), may_alias));

constexpr int kFloatLanes = PLANQ_VECTOR_BYTES / 4;
constexpr int kPanelVectors = 2;
constexpr int kPanelColumns = kPanelVectors * kFloatLanes;
constexpr int kPanelTerms = math::kTensorCoreSlice;
// Rows whose sums fit in registers, and rows that are widened at a time (at most kFloatLanes).
constexpr int kTogether = PLANQ_VECTOR_BYTES == 64 ? 4 : 2;
constexpr int kWideRows = 4;

inline Floats repeated(float x) { return x - Floats{}; }
inline Ints repeated(std::int32_t x) { return x - Ints{}; }
inline Floats load(const float* from) { return *reinterpret_cast<const Floats*>(from); }
inline Ints load(const std::int32_t* from) { return *reinterpret_cast<const Ints*>(from); }
inline Shorts load(const std::int16_t* from) { return *reinterpret_cast<const Shorts*>(from); }

inline Floats fused(Floats x, Floats y, Floats z) {
#if PLANQ_VECTOR_BYTES == 64
  return _mm512_fmadd_ps(x, y, z);
#elif PLANQ_VECTOR_BYTES == 32
  return _mm256_fmadd_ps(x, y, z);
#else
  for (int i = 0; i < kFloatLanes; ++i) z[i] = math::fused(x[i], y[i], z[i]);
  return z;
#endif
}

// --- Factors in float32, and their exponents -----------------------------------------------------

// Exponents stand in pairs of 16 bits: those of columns j and j + kFloatLanes of a panel; of a row,
// the same twice. Zeros and what is no number have exponents that no sum of two others reaches, so
// that a sum tells them: two zeros or a zero and a number, less than kNothing; with an infinity or
// a NaN, more than a float has.
constexpr std::int32_t kZeroExponent = -7000, kOddExponent = 15000, kNothing = -1000;

inline Ints exponents_of(Floats x, std::int32_t smallest) {
  const Ints magnitude = reinterpret_cast<Ints>(x) & 0x7FFFFFFF;
  const Ints normal = (magnitude >> 23) - 127;
  const Ints raised = normal > smallest ? normal : repeated(smallest);
  const Ints known = magnitude == 0 ? repeated(kZeroExponent) : raised;
  return magnitude >= 0x7F800000 ? repeated(kOddExponent) : known;
}
inline Ints paired(Ints low, Ints high) { return (low & 0xFFFF) | (high << 16); }

// Whether any lane has a bit.
inline bool any(Ints lanes) {
#if PLANQ_VECTOR_BYTES == 64
  return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(lanes),
                                reinterpret_cast<__m512i>(lanes)) != 0;
#else
  std::int32_t found = 0;
  for (int i = 0; i < kFloatLanes; ++i) found |= lanes[i];
  return found != 0;
#endif
}

struct alignas(64) WidePanel {
  float values[kPanelTerms][kPanelColumns];
  std::int16_t exponents[kPanelTerms][kPanelColumns];
};
struct alignas(64) WideRows {
  float values[kWideRows][kPanelTerms];
  std::int32_t exponents[kWideRows][kPanelTerms];
};

// math::float8_value without branches: what is no number is chosen by a mask, since compilers would
// not multiply where nobody asks for the product.
template <bool kE4M3>
void widen_float8(const std::uint8_t* __restrict from, std::int64_t count, float* __restrict to) {
  constexpr int kShift = kE4M3 ? 20 : 21;
  constexpr std::uint32_t kFinite = kE4M3 ? 0x7E : 0x7B;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t code = from[i], magnitude = code & 0x7F;
    const float value = bit_cast<float>(magnitude << kShift) * (kE4M3 ? 0x1p120f : 0x1p112f);
    const std::uint32_t quiet = kE4M3 || magnitude != kFinite + 1 ? 0x400000u : 0;
    const std::uint32_t mask = magnitude > kFinite ? 0xFFFFFFFFu : 0;
    const std::uint32_t odd = (math::Ieee<float>::kInfinity | quiet) & mask;
    to[i] = bit_cast<float>((code & 0x80) << 24 | odd | (bit_cast<std::uint32_t>(value) & ~mask));
  }
}

// `count` elements of a floating type that lie side by side.
inline void widen_line(const GemmOperand& operand, std::int64_t first, std::int64_t count,
                       float* to) {
  const std::uint8_t* from = operand.data + first * linear::detail::element_bytes(operand.dtype);
  switch (operand.dtype) {
    case DType::Float16:
      return widen<math::Half>(from, count, to);
    case DType::BFloat16:
      return widen<math::Bfloat16>(from, count, to);
    case DType::Float32:
      return widen<float>(from, count, to);
    case DType::Float8E4M3FN:
      return widen_float8<true>(from, count, to);
    default:
      return widen_float8<false>(from, count, to);
  }
}

// Terms of a few rows, and zeros behind them.
inline void widen_terms(const GemmOperand& operand, std::int64_t row, std::int64_t rows,
                        std::int64_t term, std::int64_t terms, float (*to)[kPanelTerms]) {
  for (std::int64_t r = 0; r < rows; ++r) {
    if (operand.codes)
      decode_line(*operand.codes, row + r, term, terms, to[r]);
    else if (!operand.transposed())
      widen_line(operand, (row + r) * operand.row_stride + term, terms, to[r]);
    std::memset(to[r] + terms, 0, sizeof(float) * static_cast<std::size_t>(kPanelTerms - terms));
  }
  if (!operand.transposed()) return;
  float few[kFloatLanes];
  for (std::int64_t i = 0; i < terms; ++i) {
    widen_line(operand, row * operand.row_stride + (term + i) * operand.term_stride, rows, few);
    for (std::int64_t r = 0; r < rows; ++r) to[r][i] = few[r];
  }
}

inline void widen_rows(const GemmOperand& operand, std::int64_t row, int rows, std::int64_t term,
                       std::int64_t terms, WideRows& wide) {
  const int smallest = format_of(operand.dtype).smallest_exponent();
  widen_terms(operand, row, rows, term, terms, wide.values);
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < kPanelTerms; i += kFloatLanes) {
      const Ints exponents = exponents_of(load(&wide.values[r][i]), smallest);
      *reinterpret_cast<Ints*>(&wide.exponents[r][i]) = paired(exponents, exponents);
    }
}

// Of two rows of a matrix, kStep apart, blocks of kStep columns change places.
template <int kStep, std::size_t... kLane>
inline void exchange(Floats& one, Floats& other, std::index_sequence<kLane...>) {
  constexpr auto kOne = [](int lane) { return lane & kStep ? kFloatLanes + lane - kStep : lane; };
  constexpr auto kOther = [](int lane) { return lane & kStep ? kFloatLanes + lane : lane + kStep; };
  const Floats first = one;
  one = __builtin_shufflevector(first, other, kOne(kLane)...);
  other = __builtin_shufflevector(first, other, kOther(kLane)...);
}
// Rows become columns.
template <int kStep = kFloatLanes / 2>
inline void transpose(Floats (&rows)[kFloatLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kFloatLanes; ++i)
    if ((i & kStep) == 0)
      exchange<kStep>(rows[i], rows[i + kStep], std::make_index_sequence<kFloatLanes>());
  if constexpr (kStep > 1) transpose<kStep / 2>(rows);
}

// Some columns of the weights, which lie one after another.
inline void widen_columns(const GemmOperand& operand, std::int64_t column, std::int64_t columns,
                          std::int64_t term, std::int64_t terms, float* to) {
  alignas(64) float lines[kFloatLanes][kPanelTerms];
  if (columns < kFloatLanes) std::memset(lines, 0, sizeof lines);
  widen_terms(operand, column, columns, term, terms, lines);
  for (int i = 0; i < kPanelTerms; i += kFloatLanes) {
    Floats block[kFloatLanes];
#pragma GCC unroll 16
    for (int c = 0; c < kFloatLanes; ++c) block[c] = load(&lines[c][i]);
    transpose(block);
#pragma GCC unroll 16
    for (int c = 0; c < kFloatLanes; ++c)
      *reinterpret_cast<Floats*>(to + (i + c) * kPanelColumns) = block[c];
  }
}

// Terms of the weights, column by column, and zeros beside and below them.
inline void widen_values(const GemmOperand& operand, std::int64_t column, std::int64_t columns,
                         std::int64_t term, std::int64_t terms,
                         float (&values)[kPanelTerms][kPanelColumns]) {
  if (!operand.transposed()) {
    for (int c = 0; c < kPanelColumns; c += kFloatLanes)
      widen_columns(operand, column + c, std::clamp<std::int64_t>(columns - c, 0, kFloatLanes),
                    term, terms, values[0] + c);
    return;
  }
  if (columns < kPanelColumns || terms < kPanelTerms) std::memset(values, 0, sizeof values);
  for (std::int64_t i = 0; i < terms; ++i)
    widen_line(operand, column * operand.row_stride + (term + i) * operand.term_stride, columns,
               values[i]);
}

inline void widen_panel(const GemmOperand& operand, std::int64_t column, std::int64_t columns,
                        std::int64_t term, std::int64_t terms, WidePanel& panel) {
  widen_values(operand, column, columns, term, terms, panel.values);
  const int smallest = format_of(operand.dtype).smallest_exponent();
  for (int i = 0; i < kPanelTerms; ++i)
    *reinterpret_cast<Ints*>(panel.exponents[i]) =
        paired(exponents_of(load(panel.values[i]), smallest),
               exponents_of(load(panel.values[i] + kFloatLanes), smallest));
}

// --- A group of a tensor core --------------------------------------------------------------------

// Exponents for which everything is exact. Below, a product that float32 rounds might reach a unit;
// above, a product might leave float32.
constexpr std::int32_t kLeast = -100, kMost = 125;

inline Floats power_of_two(Ints exponent) {
  return reinterpret_cast<Floats>((exponent + 127) << 23);
}

// What the outputs of a vector are aligned to.
struct Alignment {
  Floats scale, unit;  // 2^(fraction - E), and its inverse
  Ints beyond;         // not 0 where the exponent is one of those that are not exact
};

template <class Core>
inline Alignment aligned_to(Ints gemms, Floats accumulator) {
  const Ints bits = reinterpret_cast<Ints>(accumulator) & 0x7FFFFFFF;
  const Ints own = bits == 0 ? repeated(2 * kZeroExponent) : (bits >> 23) - 127;
  const Ints largest = gemms > own ? gemms : own;
  Alignment made;
  made.beyond = (largest > kMost) | ((largest < kLeast) & (largest > kNothing));
  // Where there is nothing but zeros, any exponent does.
  const Ints exponent = largest > kLeast ? largest : repeated(kLeast);
  made.scale = power_of_two(Core::kFraction - exponent);
  made.unit = power_of_two(exponent - Core::kFraction);
  return made;
}

// Truncated to whole numbers.
inline Words whole(Floats x) { return reinterpret_cast<Words>(__builtin_convertvector(x, Ints)); }

// The sum of at most 2^31 - 128 as a float, truncated. A sum that rounding made larger steps back.
inline Floats truncated(Ints sum) {
#if PLANQ_VECTOR_BYTES == 64
  // All lanes by a mask: GCC 12 takes what the plain form leaves undefined for a mistake.
  return reinterpret_cast<Floats>(_mm512_maskz_cvt_roundepi32_ps(
      0xFFFF, reinterpret_cast<__m512i>(sum), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC));
#else
  const Ints sign = sum >> 31, magnitude = (sum ^ sign) - sign;
  const Floats nearest = __builtin_convertvector(magnitude, Floats);
  const Ints over = __builtin_convertvector(nearest, Ints) > magnitude;
  return reinterpret_cast<Floats>((reinterpret_cast<Ints>(nearest) + over) | (sign & INT32_MIN));
#endif
}

// 16 products stay below 2^31 by themselves; with the accumulator and what rounding adds they might
// not.
constexpr std::uint32_t kLargestSum = INT32_MAX - (1 << 26) - 127;

// The fraction bits that a result has.
template <class Core>
inline Floats rounded(Floats x) {
  constexpr std::int32_t kKept = -1 << (23 - Core::kOut);
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(x) & kKept);
}

// One step for a row and a vector of columns of which E is at most 0. Both factors are 2^60 times
// as large, for which there is room above, so that float32 rounds no product that reaches a unit;
// and results below 2^-126 are truncated where their bits end. False where that does not do either.
template <class Core>
bool add_small_group(const float* row, const std::int32_t* exponents, const WidePanel& panel,
                     int term, int vector, Floats& sum) {
  const Ints bits = reinterpret_cast<Ints>(sum) & 0x7FFFFFFF;
  const Ints own = (bits >> 23) - 127 > -126 ? (bits >> 23) - 127 : repeated(-126);
  Ints largest = bits == 0 ? repeated(math::kTensorCoreFloor) : own, beyond = {};
  for (int i = 0; i < Core::kGroup; ++i) {
    const Ints pairs = reinterpret_cast<Ints>(load(panel.exponents[term + i]));
    const Ints gemm = (vector == 0 ? (pairs << 16) >> 16 : pairs >> 16) + (exponents[i] >> 16);
    largest = gemm > largest ? gemm : largest;
  }
  if (any(largest > 0)) return false;
  constexpr float kStep = 0x1p60f, kRoom = 0x1p67f;
  const Floats scale = power_of_two(Core::kFraction - largest - 120);
  Words added = {};
  for (int i = 0; i < Core::kGroup; ++i) {
    const Floats weight = load(panel.values[term + i] + vector * kFloatLanes);
    beyond |= (weight >= kRoom) | (weight <= -kRoom);
    if (row[i] >= kRoom || row[i] <= -kRoom) return false;
    added += whole(repeated(row[i] * kStep) * (weight * kStep) * scale);
  }
  beyond |= reinterpret_cast<Ints>(added + kLargestSum > 2 * kLargestSum);
  if (any(beyond)) return false;
  added += whole(sum * kStep * power_of_two(Core::kFraction - largest - 60));
  const Ints all = reinterpret_cast<Ints>(added), sign = all >> 31;
  const Ints lost = Core::kFraction - Core::kOut - 126 - largest;
  const Ints zeros = lost > 0 ? lost : Ints{};
  const Ints kept = ((((all ^ sign) - sign) >> zeros) << zeros ^ sign) - sign;
  sum = rounded<Core>(truncated(kept) * 0x1p-64f * power_of_two(largest - Core::kFraction + 64));
  return true;
}

// A group for which the vectors of add_group do not do.
template <class Core, int kRows>
[[gnu::noinline, gnu::cold]] void add_odd_group(const WideRows& rows, int first,
                                                const WidePanel& panel, int term, int smallest_row,
                                                int smallest_column,
                                                Floats (&sums)[kRows][kPanelVectors]) {
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kPanelVectors; ++v) {
      const float* row = &rows.values[first + r][term];
      const std::int32_t* exponents = &rows.exponents[first + r][term];
      if (add_small_group<Core>(row, exponents, panel, term, v, sums[r][v])) continue;
      for (int lane = 0; lane < kFloatLanes; ++lane) {
        const float* column = &panel.values[term][v * kFloatLanes + lane];
        sums[r][v][lane] =
            math::tensor_core_step<Core>(sums[r][v][lane], {row, smallest_row},
                                         {column, smallest_column, kPanelColumns}, Core::kGroup);
      }
    }
}

// The largest exponents of products, in pairs.
template <class Core, int kRows>
inline void find_largest(const WideRows& rows, int row, const WidePanel& panel, int term,
                         Shorts (&largest)[kRows]) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) largest[r] = Shorts{} - 32767;
  for (int i = term; i < term + Core::kGroup; ++i) {
    const Shorts weight = load(panel.exponents[i]);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Shorts sum = reinterpret_cast<Shorts>(repeated(rows.exponents[row + r][i])) + weight;
      largest[r] = sum > largest[r] ? sum : largest[r];
    }
  }
}

// One step for some rows and all columns of a panel.
template <class Core, int kRows>
inline void add_group(const WideRows& rows, int row, const WidePanel& panel, int term,
                      int smallest_row, int smallest_column, Floats (&sums)[kRows][kPanelVectors]) {
  Shorts largest[kRows];
  find_largest<Core, kRows>(rows, row, panel, term, largest);
  Floats scale[kRows][kPanelVectors];
  Alignment aligned[kRows][kPanelVectors];
  Ints beyond = {};
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const Ints pairs = reinterpret_cast<Ints>(largest[r]);
    aligned[r][0] = aligned_to<Core>((pairs << 16) >> 16, sums[r][0]);
    aligned[r][1] = aligned_to<Core>(pairs >> 16, sums[r][1]);
    beyond |= aligned[r][0].beyond | aligned[r][1].beyond;
    scale[r][0] = aligned[r][0].scale;
    scale[r][1] = aligned[r][1].scale;
  }
  // Words: where a number is none, sums wrap.
  Words added[kRows][kPanelVectors] = {};
  for (int i = term; i < term + Core::kGroup; ++i) {
    const Floats weight[kPanelVectors] = {load(panel.values[i]),
                                          load(panel.values[i] + kFloatLanes)};
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Floats input = repeated(rows.values[row + r][i]);
#pragma GCC unroll 2
      for (int v = 0; v < kPanelVectors; ++v) added[r][v] += whole(input * weight[v] * scale[r][v]);
    }
  }
  if constexpr (Core::kGroup * (std::uint64_t{4} << Core::kFraction) > kLargestSum)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kPanelVectors; ++v)
        beyond |= reinterpret_cast<Ints>(added[r][v] + kLargestSum > 2u * kLargestSum);
  if (any(beyond))
    return add_odd_group<Core, kRows>(rows, row, panel, term, smallest_row, smallest_column, sums);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kPanelVectors; ++v) {
      const Words all = added[r][v] + whole(sums[r][v] * scale[r][v]);
      sums[r][v] = rounded<Core>(truncated(reinterpret_cast<Ints>(all)) * aligned[r][v].unit);
    }
}

// --- Bodies --------------------------------------------------------------------------------------

// What is the same for all slices of a block.
struct SliceArgs {
  int smallest_row, smallest_column;  // exponents of normal numbers
  bool continues;                     // a chain goes on from the sums so far
};

// A slice of some rows onto the sums so far: a chain of its own, or one that goes on from them.
// `scales`: of the rows, by which slices join; null: there are none.
template <class Core, int kRows>
inline void add_slice(const SliceArgs& args, const WideRows& rows, int row, const WidePanel& panel,
                      int terms, const float* scales, float* sums) {
  const auto place = [&](int r, int v) { return sums + r * kPanelColumns + v * kFloatLanes; };
  Floats chain[kRows][kPanelVectors] = {};
  if (args.continues)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kPanelVectors; ++v) chain[r][v] = load(place(r, v));
  for (int term = 0; term < terms; term += Core::kGroup)
    add_group<Core, kRows>(rows, row, panel, term, args.smallest_row, args.smallest_column, chain);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kPanelVectors; ++v) {
      const Floats before = load(place(r, v)), slice = chain[r][v];
      *reinterpret_cast<Floats*>(place(r, v)) = args.continues ? slice
                                                : scales ? fused(slice, repeated(scales[r]), before)
                                                         : before + slice;
    }
}

// The same for a number of rows that is known at run time.
template <class Core, int kRows = kTogether>
void add_slices(int count, const SliceArgs& args, const WideRows& rows, int row,
                const WidePanel& panel, int terms, const float* scales, float* sums) {
  if constexpr (kRows > 1)
    if (count < kRows)
      return add_slices<Core, kRows - 1>(count, args, rows, row, panel, terms, scales, sums);
  add_slice<Core, kRows>(args, rows, row, panel, terms, scales, sums);
}

// By what a slice of some rows is multiplied where blocks have scales: a panel's columns are all of
// one block.
inline void scales_of_slice(const Gemm& p, std::int64_t row, int rows, std::int64_t column,
                            std::int64_t slice, float* scales) {
  const Epilogue& e = p.epilogue;
  const float of_weight = static_cast<const float*>(
      e.weight_scale)[column / linear::kBlockColumns * p.weight_scale_row + slice];
  const float* const of_input = static_cast<const float*>(e.input_scale) + slice;
  for (int r = 0; r < rows; ++r) scales[r] = of_input[(row + r) * e.input_scale_row] * of_weight;
}

// Accumulation::TensorSm90. Bodies are not inlined: their panels would take stack at the same time.
template <class Core>
[[gnu::noinline]] void sums_by_tensor_core(const Gemm& p, const Block& b, float* sums) {
  static_assert(linear::kBlockColumns % kPanelColumns == 0);
  WidePanel panel;
  WideRows rows;
  float scales[kWideRows];
  const SliceArgs args{format_of(p.input.dtype).smallest_exponent(),
                       format_of(p.weight.dtype).smallest_exponent(), p.continues};
  for (std::int64_t term = 0; term < p.k; term += kPanelTerms) {
    const std::int64_t terms = std::min<std::int64_t>(kPanelTerms, p.k - term);
    widen_panel(p.weight, b.column, b.columns, term, terms, panel);
    for (std::int64_t row = 0; row < b.rows; row += kWideRows) {
      const int count = static_cast<int>(std::min<std::int64_t>(kWideRows, b.rows - row));
      widen_rows(p.input, b.row + row, count, term, terms, rows);
      if (p.joins_by_scales)
        scales_of_slice(p, b.row + row, count, b.column, term / kPanelTerms, scales);
      for (int i = 0; i < count; i += kTogether)
        add_slices<Core>(std::min(kTogether, count - i), args, rows, i, panel,
                         static_cast<int>(terms), p.joins_by_scales ? scales + i : nullptr,
                         sums + (row + i) * kPanelColumns);
    }
  }
}

// --- Accumulation::Lanes -------------------------------------------------------------------------

constexpr int kLaneRows = 4;
struct alignas(64) Lanes {
  float sums[math::kSumLanes][kLaneRows][kPanelColumns];
};

// Some neighbouring terms, which all belong to one lane.
inline void add_to_lane(const float* row, const float (*panel)[kPanelColumns], int terms,
                        float* lane) {
  Floats low = load(lane), high = load(lane + kFloatLanes);
  for (int i = 0; i < terms; ++i) {
    const Floats input = repeated(row[i]);
    low = fused(input, load(panel[i]), low);
    high = fused(input, load(panel[i] + kFloatLanes), high);
  }
  *reinterpret_cast<Floats*>(lane) = low;
  *reinterpret_cast<Floats*>(lane + kFloatLanes) = high;
}

// The sum over the lanes of a row.
inline void add_up_lanes(Lanes& lanes, int row, float* sums) {
  for (int half = math::kSumLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane)
      for (int c = 0; c < kPanelColumns; ++c)
        lanes.sums[lane][row][c] += lanes.sums[lane + half][row][c];
  std::memcpy(sums, lanes.sums[0][row], sizeof lanes.sums[0][row]);
}

[[gnu::noinline]] inline void sums_by_lanes(const Gemm& p, const Block& b, float* sums) {
  Lanes lanes;
  alignas(64) float panel[kPanelTerms][kPanelColumns];
  alignas(64) float lines[kLaneRows][kPanelTerms];
  for (std::int64_t row = 0; row < b.rows; row += kLaneRows) {
    const int rows = static_cast<int>(std::min<std::int64_t>(kLaneRows, b.rows - row));
    std::memset(&lanes, 0, sizeof lanes);
    for (std::int64_t term = 0; term < p.k; term += kPanelTerms) {
      const std::int64_t terms = std::min<std::int64_t>(kPanelTerms, p.k - term);
      widen_values(p.weight, b.column, b.columns, term, terms, panel);
      widen_terms(p.input, b.row + row, rows, term, terms, lines);
      for (int r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < terms; i += math::kLaneTerms)
          add_to_lane(lines[r] + i, panel + i,
                      static_cast<int>(std::min<std::int64_t>(math::kLaneTerms, terms - i)),
                      lanes.sums[(term + i) / math::kLaneTerms % math::kSumLanes][r]);
    }
    for (int r = 0; r < rows; ++r) add_up_lanes(lanes, r, sums + (row + r) * kPanelColumns);
  }
}

// --- Outputs -------------------------------------------------------------------------------------

// The scales that sums meet: 1, which changes nothing, where there are none or slices met them.
inline void load_column_scales(const Gemm& p, const Block& b, float (&scales)[kPanelColumns]) {
  const Epilogue& e = p.epilogue;
  const bool each = e.weight_scale && !p.joins_by_scales;
  if (each && e.weight_step == 1)
    return load_numbers<float>(e.weight_scale, e.scale_dtype, b.column, b.columns, scales);
  const float scale = each ? math::load_scale<float>(e.weight_scale, 0, e.scale_dtype) : 1.0f;
  for (float& of_column : scales) of_column = scale;
}
inline float row_scale(const Gemm& p, std::int64_t row) {
  const Epilogue& e = p.epilogue;
  if (!e.input_scale || p.joins_by_scales) return 1.0f;
  return math::load_scale<float>(e.input_scale, row * e.input_scale_row, e.scale_dtype);
}

template <class T>
void finish_block(const Gemm& p, const Block& b, const float* sums) {
  float values[kPanelColumns], scales[kPanelColumns], bias[kPanelColumns] = {};
  float residual[kPanelColumns] = {};
  const Epilogue& e = p.epilogue;
  load_column_scales(p, b, scales);
  if (e.bias) load_numbers<float>(e.bias, e.bias_dtype, b.column, b.columns, bias);
  for (std::int64_t i = 0; i < b.rows; ++i, sums += kPanelColumns) {
    const std::int64_t row = b.row + i;
    if (e.residual)
      load_numbers<float>(e.residual, e.residual_dtype, row * e.residual_row + b.column, b.columns,
                          residual);
    const float scale = row_scale(p, row);
    for (std::int64_t c = 0; c < b.columns; ++c)
      values[c] = linear::with_addends(sums[c] * scale * scales[c], bias[c], residual[c], e);
    narrow<T>(values, b.columns, reinterpret_cast<T*>(p.output) + row * p.output_row + b.column);
  }
}

inline void store_block(const Gemm& p, const Block& b, const float* sums) {
  switch (p.output_dtype) {
    case DType::Float16:
      return finish_block<math::Half>(p, b, sums);
    case DType::BFloat16:
      return finish_block<math::Bfloat16>(p, b, sums);
    default:
      return finish_block<float>(p, b, sums);
  }
}

// A row of what the output holds, where a chain goes on from it.
inline float* held_sums(const Gemm& p, const Block& b, std::int64_t row) {
  return reinterpret_cast<float*>(p.output) + (b.row + row) * p.output_row + b.column;
}
inline void load_sums(const Gemm& p, const Block& b, float* sums) {
  for (std::int64_t i = 0; i < b.rows; ++i)
    std::copy_n(held_sums(p, b, i), b.columns, sums + i * kPanelColumns);
}
inline void hold_sums(const Gemm& p, const Block& b, const float* sums) {
  for (std::int64_t i = 0; i < b.rows; ++i)
    std::copy_n(sums + i * kPanelColumns, b.columns, held_sums(p, b, i));
}

inline void compute_block(const Gemm& p, Accumulation accumulation, Block b) {
  alignas(64) float sums[kBlockRows * kPanelColumns] = {};
  if (p.continues) load_sums(p, b, sums);
  if (accumulation == Accumulation::Lanes)
    sums_by_lanes(p, b, sums);
  else if (is_fp8(p.input.dtype))
    sums_by_tensor_core<math::TensorCore8>(p, b, sums);
  else
    sums_by_tensor_core<math::TensorCore16>(p, b, sums);
  if (p.continues) return hold_sums(p, b, sums);
  store_block(p, b, sums);
}

}  // namespace planq::host::PLANQ_LEVEL::floating
