// Loops over the elements of a piece, for one instruction set: see host.cpp. No include guard: see
// instruction_sets.h.

#include "host/convert.h"

namespace planq::optimizer_step::PLANQ_LEVEL {

template <class T>
void load(const void* from, std::int64_t count, float* to) {
  host::PLANQ_LEVEL::widen<T>(from, count, to);
}
template <class T>
void store(const float* from, std::int64_t count, void* to) {
  host::PLANQ_LEVEL::narrow<T>(from, count, to);
}

inline void decode(const std::uint8_t* codes, std::int64_t count, const float* values, float absmax,
                   float* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = values[codes[i]] * absmax;
}

// Gradients as they enter the step, and which elements stay as they are.
inline void scale(const Rule& rule, float by, std::int64_t count, Piece& piece) {
  float* const __restrict g = piece.gradient;
  for (std::int64_t i = 0; i < count; ++i) g[i] = by * g[i];
  piece.any_untouched = false;
  if (!rule.skips_zeros && !rule.skips_nonfinite) return;
  for (std::int64_t i = 0; i < count; ++i) {
    piece.untouched[i] = optimizer::is_untouched(rule, g[i]);
    piece.any_untouched |= piece.untouched[i] != 0;
  }
}

// Parameters, states and updates, of untouched elements too.
template <OptimizerAlgorithm kAlgorithm>
void advance(const Rule& given_rule, const Factors& given_factors, const Trust& given_trust,
             std::int64_t count, Piece& piece) {
  // Copies, which nothing in the loop can change.
  const Rule rule = given_rule;
  const Factors factors = given_factors;
  const Trust trust = given_trust;
  constexpr int kStates = optimizer::count_states(kAlgorithm, true);
  for (std::int64_t i = 0; i < count; ++i) {
    States states{};
    for (int k = 0; k < kStates; ++k)
      if (k < rule.states) states.at[k] = piece.state[k][i];
    const optimizer::Advanced a = optimizer::advanced<kAlgorithm>(rule, factors, piece.parameter[i],
                                                                  piece.gradient[i], states, trust);
    for (int k = 0; k < kStates; ++k) piece.state[k][i] = a.states.at[k];
    piece.update[i] = a.update;
    piece.parameter[i] = optimizer::updated(rule, factors, a, trust);
  }
}

inline void square(const float* x, std::int64_t count, float* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = x[i] * x[i];
}

// The largest magnitude by its bits: a NaN is above infinity.
inline float largest(const float* x, std::int64_t count) {
  std::uint32_t most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t own = math::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFu;
    most = most > own ? most : own;
  }
  return math::bit_cast<float>(most);
}

// A NaN counts as 0.
template <bool kDivide>
inline void divide(const float* x, std::int64_t count, float by, float* __restrict y) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float quotient = kDivide ? x[i] / by : x[i] * by;
    y[i] = quotient == quotient ? quotient : 0.0f;
  }
}

// coded_state() of states x with the quotients y, by buckets of a map whose codes are ranks.
inline void look_up(const float* x, const float* y, std::int64_t count,
                    const host::Buckets& buckets, std::int32_t repaired,
                    std::uint8_t* __restrict codes) {
  const std::int32_t lowest = buckets.lowest, highest = buckets.highest, base = buckets.base,
                     shift = buckets.shift, rest = (std::int32_t{1} << shift) - 1;
  const std::uint32_t* const entries = buckets.entry + buckets.half;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = math::bit_cast<std::int32_t>(y[i]);
    const std::int32_t magnitude = bits & 0x7FFFFFFF;
    const std::int32_t above = magnitude < lowest ? lowest : magnitude;
    const std::int32_t inside = above > highest ? highest : above;
    const std::int32_t place = (inside - base) ^ (bits >> 31);
    const std::uint32_t entry = entries[place >> shift];
    const auto rank =
        static_cast<std::int32_t>((entry + static_cast<std::uint32_t>(place & rest)) >> shift);
    codes[i] = static_cast<std::uint8_t>(rank - (rank == repaired && x[i] < 0 ? 1 : 0));
  }
}

inline void encode(const float* x, std::int64_t count, const math::BlockDivision<float>& block,
                   const Map& map, bool is_signed, std::uint8_t* __restrict codes) {
  const math::ByteTable& table = *map.table;
  if (block.empty) {
    std::memset(codes, table.zero, static_cast<std::size_t>(count));
  } else if (map.buckets) {
    float y[kPiece];
    block.divides ? divide<true>(x, count, block.absmax, y)
                  : divide<false>(x, count, block.inverse, y);
    look_up(x, y, count, *map.buckets, is_signed ? table.zero : -1, codes);
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      codes[i] = optimizer::coded_state(x[i], block, table, is_signed);
  }
}

using enum OptimizerAlgorithm;
inline constexpr Loops kLoops = {
    {load<math::Half>, load<math::Bfloat16>, load<float>},
    {store<math::Half>, store<math::Bfloat16>, store<float>},
    decode,
    scale,
    {advance<Adam>, advance<AdEMAMix>, advance<Momentum>, advance<RmsProp>, advance<Adagrad>,
     advance<Lion>, advance<Lamb>, advance<Lars>},
    square,
    largest,
    encode,
};

}  // namespace planq::optimizer_step::PLANQ_LEVEL
