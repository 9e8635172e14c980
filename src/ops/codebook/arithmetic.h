// Codebooks: which code an element takes, and what a code stands for. Tables, thresholds and scalar
// functions for host and device; docs/numerics/codebook.md has the contract.
//
// The rank of a value is its place in ascending order, -0 before +0; its code is its index in the
// codebook. The two differ in compiled-in 4-bit tables, and in a caller's codebook that has a +0
// before a -0. A NaN quotient counts as +0 everywhere.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "core/dtype.h"
#include "math/tree_sum.h"
#include "ops/affine/affine.h"
#include "ops/codebook/vocabulary.h"

namespace planq::math {

// ---- tables ----------------------------------------------------------------------------------

// A codebook of up to kCapacity (16 or 256) values, prepared for searching, and small enough to be
// a kernel argument. Ranks and codes stay inside of the table, whatever a caller's codebook holds.
template <int kCapacity>
struct CodebookTable {
  static constexpr bool kFourBit = kCapacity == 16;

  float value[kCapacity];      // by code; NaN beyond the entries
  float threshold[kCapacity];  // rank r + 1 begins above [r]; non-decreasing; +Inf beyond the ranks
  std::uint8_t code[kCapacity];  // by rank; 8-bit codes: only where zeros are swapped
  std::int32_t ranks;
  std::uint8_t zero;   // the code nearest to +0
  bool mirrored;       // thresholds of negative values mirror those of positive ones: fp4
  bool zeros_swapped;  // a caller's +0 comes before a -0

  PLANQ_HD constexpr std::uint8_t code_at(int rank) const {
    return kFourBit || zeros_swapped ? code[rank] : static_cast<std::uint8_t>(rank);
  }
  // The value as a number; the sign of a zero may be wrong.
  PLANQ_HD constexpr float value_at(int rank) const { return value[kFourBit ? code[rank] : rank]; }
};
using NibbleTable = CodebookTable<16>;
using ByteTable = CodebookTable<256>;

// The next float below.
PLANQ_HD constexpr float next_below(float x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (x == -kInfinity) return x;
  if (x == 0) return -std::numeric_limits<float>::denorm_min();
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>(x > 0 ? bits - 1 : bits + 1);
}

// fl(fl(low + high) / 2), or fl(low / 2 + high / 2) where the sum overflows.
PLANQ_HD constexpr float middle_of(float low, float high) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const float sum = low + high;
  return sum <= kLargest && sum >= -kLargest ? sum / 2 : low / 2 + high / 2;
}

// The threshold between a rank and the next one, before thresholds are made non-decreasing. A tie
// goes to the even rank with codes of 8 bits, and to the lower rank with those of 4 bits.
PLANQ_HD constexpr float threshold_between(int rank, float low, float high, bool ties_to_even) {
  const float middle = middle_of(low, high);
  return ties_to_even && rank % 2 == 1 && low < high ? next_below(middle) : middle;
}

// The rank of a quotient: how many thresholds it exceeds.
template <int kCapacity>
PLANQ_HD constexpr int rank_of(float y, const CodebookTable<kCapacity>& table) {
  int rank = 0;
  for (int step = kCapacity / 2; step > 0; step /= 2)
    if (y > table.threshold[rank + step - 1]) rank += step;
  return rank;
}

// Whether a +0 is followed by a -0.
PLANQ_HD constexpr bool swapped_zeros(float value, float next) {
  return std::bit_cast<std::uint32_t>(value) == 0 &&
         std::bit_cast<std::uint32_t>(next) == std::uint32_t{1} << 31;
}

// The codes of a caller's ascending values by rank: only the signs of zeros may be out of order.
template <int kCapacity>
PLANQ_HD constexpr void rank_zeros(CodebookTable<kCapacity>& table) {
  int first = 0;
  while (first < table.ranks && table.value[first] != 0) ++first;
  int end = first;
  while (end < table.ranks && table.value[end] == 0) ++end;
  for (int i = 0; i < table.ranks; ++i) table.code[i] = static_cast<std::uint8_t>(i);
  int rank = first;
  for (int positive = 0; positive < 2; ++positive)
    for (int i = first; i < end; ++i)
      if ((std::bit_cast<std::uint32_t>(table.value[i]) == 0) == (positive == 1))
        table.code[rank++] = static_cast<std::uint8_t>(i);
}

// Completes a table that has its values, codes and ranks.
template <int kCapacity>
PLANQ_HD constexpr void set_thresholds(CodebookTable<kCapacity>& table) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float highest = -kInfinity;
  for (int rank = 0; rank < kCapacity; ++rank) {
    table.threshold[rank] = kInfinity;
    if (rank + 1 >= table.ranks) continue;
    const float next = threshold_between(rank, table.value_at(rank), table.value_at(rank + 1),
                                         !CodebookTable<kCapacity>::kFourBit);
    highest = next > highest ? next : highest;
    table.threshold[rank] = highest;
  }
  table.zero = table.code_at(rank_of(0.0f, table));
}

// A caller's codebook: ascending values, of which equal ones may follow one another.
template <int kCapacity>
PLANQ_HD void set_given(CodebookTable<kCapacity>& table, const float* values, int entries) {
  table.ranks = entries;
  table.mirrored = false;
  table.zeros_swapped = false;
  for (int i = 0; i < kCapacity; ++i) {
    table.value[i] = i < entries ? values[i] : canonical_nan<float>();
    table.code[i] = static_cast<std::uint8_t>(i);
    table.zeros_swapped |= i > 0 && swapped_zeros(table.value[i - 1], table.value[i]);
  }
  if (table.zeros_swapped) rank_zeros(table);
  set_thresholds(table);
}

// bitsandbytes' dynamic maps: seven decades, each cut into twice the cells of the one below. The
// edges of cells are single roundings; the sums are exact in double.
constexpr ByteTable make_dynamic(bool is_signed) {
  ByteTable table{};
  table.ranks = 256;
  constexpr float kStart = 0.1f;
  constexpr float kDecades[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  int rank = is_signed ? 128 : 1;  // the one below is 0
  for (int decade = 0; decade < 7; ++decade) {
    const int cells = (is_signed ? 1 : 2) << decade;
    const float step = (1.0f - kStart) / static_cast<float>(cells);
    const auto edge = [&](int i) {
      return i < (cells + 1) / 2 ? static_cast<float>(double{kStart} + double{step} * i)
                                 : static_cast<float>(1.0 - double{step} * (cells - i));
    };
    for (int i = 0; i < cells; ++i, ++rank) {
      table.value[rank] = kDecades[decade] * ((edge(i) + edge(i + 1)) / 2);
      if (is_signed) table.value[254 - rank] = -table.value[rank];
    }
  }
  table.value[255] = 1.0f;
  set_thresholds(table);
  return table;
}

// Quantiles of the normal distribution (Dettmers et al., QLoRA). Its thresholds are the decimal
// constants of bitsandbytes. Thresholds 0, 8, 12 and 14 lie very near to the middle of two floats.
// So they must be float literals: a rounded sum of two values, or a double literal, would give the
// other float.
constexpr NibbleTable make_nf4() {
  NibbleTable table{
      {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
       -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
       0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
       0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f},
      {-0.8480964004993439f, -0.6106329262256622f, -0.4599952697753906f, -0.33967943489551544f,
       -0.23460740596055984f, -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f,
       0.1202552504837513f, 0.2035212516784668f, 0.2920137718319893f, 0.3893125355243683f,
       0.5016634166240692f, 0.6427869200706482f, 0.8614784181118011f,
       std::numeric_limits<float>::infinity()},
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
      16,
      0,
      false,
      false};
  table.zero = table.code_at(rank_of(0.0f, table));
  return table;
}

// Multiples of 1/7 in descending order, with a -0 that no element is coded as.
constexpr NibbleTable make_int4() {
  NibbleTable table{{},    {},   {15, 14, 13, 12, 11, 10, 9, 7, 6, 5, 4, 3, 2, 1, 0, 0}, 15, 0,
                    false, false};
  for (int i = 0; i < 8; ++i) {
    table.value[i] = static_cast<float>(7 - i) / 7.0f;
    table.value[15 - i] = -table.value[i];
  }
  set_thresholds(table);
  return table;
}

// Yoshida, NF4 Isn't Information Theoretically Optimal; its table for blocks of 64, in descending
// order.
constexpr NibbleTable make_af4() {
  NibbleTable table{{1.0f, 0.72424863f, 0.55496234f, 0.42563882f, 0.31675666f, 0.21961274f,
                     0.12934483f, 0.04273164f, 0.0f, -0.04934812f, -0.14982478f, -0.25607552f,
                     -0.3736951f, -0.51243739f, -0.69441008f, -1.0f},
                    {},
                    {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
                    16,
                    0,
                    false,
                    false};
  set_thresholds(table);
  return table;
}

// bitsandbytes' 4-bit float: bit 3 is the sign. Its thresholds are decimal constants for
// magnitudes. For negative y they are mirrored: "above t" becomes "at -t or above", and -0 lies
// below every y >= 0.
constexpr NibbleTable make_fp4() {
  constexpr float kTwelfths[] = {0, 0.0625f, 8, 12, 4, 6, 2, 3};
  constexpr std::uint8_t kAscending[] = {0, 1, 6, 7, 4, 5, 2, 3};
  constexpr float kThresholds[] = {0.00260417f, 0.0859375f, 0.20833333f, 0.29166667f,
                                   0.4166667f,  0.583333f,  0.8333333f};
  NibbleTable table{};
  table.ranks = 16;
  table.mirrored = true;
  for (int i = 0; i < 8; ++i) {
    table.value[i] = kTwelfths[i] / 12.0f;
    table.value[8 + i] = -table.value[i];
    table.code[8 + i] = kAscending[i];
    table.code[7 - i] = 8 + kAscending[i];
  }
  for (int i = 0; i < 7; ++i) {
    table.threshold[8 + i] = kThresholds[i];
    table.threshold[6 - i] = next_below(-kThresholds[i]);
  }
  table.threshold[7] = next_below(0.0f);
  table.threshold[15] = std::numeric_limits<float>::infinity();
  return table;
}

inline constexpr ByteTable kDynamicTable = make_dynamic(true),
                           kUnsignedDynamicTable = make_dynamic(false);
inline constexpr NibbleTable kNf4Table = make_nf4(), kFp4Table = make_fp4(),
                             kInt4Table = make_int4(), kAf4Table = make_af4();

// A compiled-in table of 4-bit codes; host only.
constexpr const NibbleTable& nibble_table(Codebook codebook) {
  switch (codebook) {
    case Codebook::Fp4:
      return kFp4Table;
    case Codebook::Int4:
      return kInt4Table;
    case Codebook::Af4:
      return kAf4Table;
    default:
      return kNf4Table;
  }
}

// ---- from an element to its code ---------------------------------------------------------------

// The stored absmax of a block whose largest magnitude is `found`: NaN if that is not finite. Under
// SATURATE it is always finite.
template <class C>
PLANQ_HD C stored_absmax(C found) {
  return is_finite(found) ? found : canonical_nan<C>();
}

// How the elements of a block become quotients. By default they are left unchanged.
template <class C>
struct BlockDivision {
  C absmax = C{1}, inverse = C{1};
  bool divides = false;  // x / absmax, not x * inverse
  bool empty = false;    // absmax is 0 or NaN: all codes are the table's zero
};

// RECIPROCAL falls back to a division where the reciprocal overflows.
template <class C>
PLANQ_HD BlockDivision<C> block_division(C absmax, Quotient quotient) {
  const C inverse = C{1} / absmax;
  const bool overflows = magnitude_bits(inverse) == Ieee<C>::kInfinity;
  return BlockDivision<C>{absmax, inverse, quotient == Quotient::Divide || overflows,
                          absmax == C{0} || is_nan(absmax)};
}

template <class C>
PLANQ_HD C divided(C x, const BlockDivision<C>& block) {
  return block.divides ? x / block.absmax : x * block.inverse;
}

// The float that exceeds the same thresholds as y: y rounded up, or rounded down if y is negative
// and thresholds are mirrored.
PLANQ_HD float searched(float y, bool) { return y; }
PLANQ_HD float searched(double y, bool mirrored) {
  const bool turned = mirrored && y < 0;
  const double upwards = turned ? -y : y;
  float near = static_cast<float>(upwards);
  if (static_cast<double>(near) < upwards) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(near);
    near = bit_cast<float>(near < 0.0f ? bits - 1 : bits + 1);
  }
  return turned ? -near : near;
}

template <class C>
PLANQ_HD C number_of(C y) {
  return is_nan(y) ? C{0} : y;
}

template <class C, int kCapacity>
PLANQ_HD std::uint8_t nearest_code(C y, const CodebookTable<kCapacity>& table) {
  return table.code_at(rank_of(searched(number_of(y), table.mirrored), table));
}

// The highest rank whose value is not above y; 0 if all values are above y.
template <class C, int kCapacity>
PLANQ_HD int rank_below(C y, const CodebookTable<kCapacity>& table) {
  int rank = 0;
  for (int step = kCapacity / 2; step > 0; step /= 2)
    if (rank + step < table.ranks && static_cast<C>(table.value_at(rank + step)) <= y) rank += step;
  return rank;
}

// STOCHASTIC: the upper neighbour, if the random number in [0, 1) is smaller than the fraction of
// the gap that lies below y; else the lower one.
template <class C, int kCapacity>
PLANQ_HD std::uint8_t stochastic_code(C y, const CodebookTable<kCapacity>& table, C uniform) {
  y = number_of(y);
  const int rank = rank_below(y, table);
  const C low = static_cast<C>(table.value_at(rank));
  if (!(low <= y) || rank + 1 >= table.ranks) return table.code_at(rank);
  const C gap = static_cast<C>(table.value_at(rank + 1)) - low;
  return table.code_at(uniform < (y - low) / gap ? rank + 1 : rank);
}

// ---- back ------------------------------------------------------------------------------------

// fl(v * absmax): the dequantized value in the compute type.
template <class C, int kCapacity>
PLANQ_HD C decoded(std::uint8_t code, const CodebookTable<kCapacity>& table, C absmax) {
  return static_cast<C>(table.value[code]) * absmax;
}

// An absmax from nested statistics: fl(fl(v * nested absmax) + offset).
template <class C>
PLANQ_HD C restored_absmax(float value, C nested_absmax, C nested_offset) {
  return static_cast<C>(value) * nested_absmax + nested_offset;
}

// ---- the mean of the absmax --------------------------------------------------------------------

// The mean, by one division; 0 if count is 0. A NaN becomes the canonical NaN.
template <class C>
PLANQ_HD C mean_of(C sum, std::int64_t count) {
  const C mean = sum / static_cast<C>(count > 0 ? count : 1);
  return is_nan(mean) ? canonical_nan<C>() : mean;
}

}  // namespace planq::math
