// The loops over keys, vectorised by the compiler. No include guard: see instruction_sets.h.

namespace planq::host::PLANQ_LEVEL {

// Loops run over blocks of a fixed size, which compilers turn into straight vector code.
inline constexpr int kBlock = 64;
inline constexpr int kSmallBlock = 16;

// Both ends that an element, or a vector of them, stands for. With kFinite a NaN or an infinity
// stands for none.
template <class T, bool kSigns, bool kFinite, class V>
inline void key_ends(V bits, V& low, V& high) {
  using K = Key<T>;
  constexpr auto kNone = no_keys<Key<T>>(kSigns);
  const V magnitude = bits & kMagnitude<T>;
  V key = magnitude;
  if constexpr (kSigns) key = bits ^ ((bits >> (sizeof(K) * 8 - 1)) & kMagnitude<T>);
  low = high = key;
  if constexpr (kFinite) {
    const V none_low = V{} + kNone.low, none_high = V{} + kNone.high;
    low = magnitude >= kInfinityKey<T> ? none_low : key;
    high = magnitude >= kInfinityKey<T> ? none_high : key;
  }
}

template <bool kSmallest, class V>
inline V extremes(V a, V b) {
  if constexpr (kSmallest) return a < b ? a : b;
  return a > b ? a : b;
}

template <class T, bool kSigns, bool kFinite, class V>
inline void include(V bits, V& low, V& high) {
  V key_low, key_high;
  key_ends<T, kSigns, kFinite>(bits, key_low, key_high);
  if constexpr (kSigns) low = extremes<true>(low, key_low);
  high = extremes<false>(high, key_high);
}

inline void prefetch_block(const void* where, std::int64_t bytes) {
  for (std::int64_t line = 0; line < bytes; line += 64)
    __builtin_prefetch(static_cast<const char*>(where) + line, 0, 3);
}

template <class K, int kBytes>
struct VectorOf {
  typedef K type __attribute__((vector_size(kBytes)));
};
template <class K, int kBytes>
using Vector = typename VectorOf<K, kBytes>::type;

template <class K, int kShift, class V, std::size_t... kLane>
inline V rotated(V v, std::index_sequence<kLane...>) {
#if defined(__clang__)
  return __builtin_shufflevector(v, v, ((kLane + kShift) % sizeof...(kLane))...);
#else
  return __builtin_shuffle(v, V{static_cast<K>((kLane + kShift) % sizeof...(kLane))...});
#endif
}

// The smallest or the largest lane: halves against each other down to 16 bytes, then rotations.
template <bool kSmallest, class K, int kBytes, int kShift = 8 / sizeof(K)>
inline K extreme_lane(Vector<K, kBytes> v) {
  if constexpr (kBytes > 16) {
    Vector<K, kBytes / 2> half[2];
    std::memcpy(half, &v, kBytes);
    return extreme_lane<kSmallest, K, kBytes / 2>(extremes<kSmallest>(half[0], half[1]));
  } else {
    constexpr int kLanes = 16 / sizeof(K);
    const auto turned = rotated<K, kShift>(v, std::make_index_sequence<kLanes>{});
    v = extremes<kSmallest>(v, turned);
    if constexpr (kShift > 1) return extreme_lane<kSmallest, K, kBytes, kShift / 2>(v);
    return v[0];
  }
}

// Lines that do not end on a whole vector measure their last vector's worth again.
template <class T, bool kSigns, bool kFinite, int kBytes = PLANQ_VECTOR_BYTES>
inline Keys<Key<T>> row_keys(const T* x, std::int64_t n, std::int64_t ahead) {
  using K = Key<T>;
  using V = Vector<K, kBytes>;
  constexpr int kLanes = kBytes / sizeof(K);
  Keys<K> keys = no_keys<Key<T>>(kSigns);
  if (n < kLanes) {
    if constexpr (kBytes > 16) return row_keys<T, kSigns, kFinite, kBytes / 2>(x, n, ahead);
    for (std::int64_t i = 0; i < n; ++i)
      include<T, kSigns, kFinite>(math::bit_cast<K>(x[i]), keys.low, keys.high);
    return keys;
  }
  // Some element replaces what the vectors begin with. Not -1 where 0 does as well: that would be
  // made by an instruction that waits for the line before.
  V low = V{} + keys.low, high = V{} + (kSigns || kFinite ? keys.high : K{0});
  const auto vector_at = [&](std::int64_t i) {
    V bits;
    std::memcpy(&bits, x + i, sizeof(bits));
    include<T, kSigns, kFinite>(bits, low, high);
  };
  constexpr int kUnroll = 128 / kBytes;
  std::int64_t i = 0;
  for (; i + kUnroll * kLanes <= n; i += kUnroll * kLanes) {
    prefetch_block(reinterpret_cast<const char*>(x + i) + ahead, 128);
    for (int part = 0; part < kUnroll; ++part) vector_at(i + part * kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) vector_at(i);
  if (i < n) vector_at(n - kLanes);
  if constexpr (kSigns) keys.low = extreme_lane<true, K, kBytes>(low);
  keys.high = extreme_lane<false, K, kBytes>(high);
  return keys;
}

template <class T, bool kSigns, bool kFinite>
void measure_lines(const void* from, KeyLines lines, int step, std::int64_t ahead, Key<T>* low,
                   Key<T>* high) {
  const T* x = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < lines.count; ++i, low += step, high += step) {
    const auto keys = row_keys<T, kSigns, kFinite>(x + i * lines.stride, lines.length, ahead);
    if constexpr (kSigns) *low = keys.low < *low ? keys.low : *low;
    *high = keys.high > *high ? keys.high : *high;
  }
}

// Elements of kRows rows, `stride` apart, each column in its range.
template <class T, bool kSigns, bool kFinite, int kRows>
inline void include_block(const T* __restrict x, std::int64_t stride, std::int64_t count,
                          Key<T>* __restrict low, Key<T>* __restrict high) {
  for (std::int64_t j = 0; j < count; ++j)
    for (int row = 0; row < kRows; ++row)
      include<T, kSigns, kFinite>(math::bit_cast<Key<T>>(x[row * stride + j]), low[j], high[j]);
}

template <class T, bool kSigns, bool kFinite, int kRows>
inline void include_rows(const T* x, KeyLines rows, std::int64_t ahead, Key<T>* low, Key<T>* high) {
  for (int row = 0; row < kRows; ++row)
    prefetch_block(reinterpret_cast<const char*>(x + row * rows.stride) + ahead,
                   rows.length * sizeof(T));
  std::int64_t j = 0;
  for (; j + kBlock <= rows.length; j += kBlock)
    include_block<T, kSigns, kFinite, kRows>(x + j, rows.stride, kBlock, low + j, high + j);
  for (; j + kSmallBlock <= rows.length; j += kSmallBlock)
    include_block<T, kSigns, kFinite, kRows>(x + j, rows.stride, kSmallBlock, low + j, high + j);
  include_block<T, kSigns, kFinite, kRows>(x + j, rows.stride, rows.length - j, low + j, high + j);
}

// Several rows at a time, so that ranges are read and written less often than elements.
template <class T, bool kSigns, bool kFinite>
void measure_columns(const void* from, KeyLines rows, std::int64_t ahead, Key<T>* low,
                     Key<T>* high) {
  constexpr int kRows = 4;
  const T* x = static_cast<const T*>(from);
  std::int64_t i = 0;
  for (; i + kRows <= rows.count; i += kRows)
    include_rows<T, kSigns, kFinite, kRows>(x + i * rows.stride, rows, ahead, low, high);
  for (; i < rows.count; ++i)
    include_rows<T, kSigns, kFinite, 1>(x + i * rows.stride, rows, ahead, low, high);
}

template <class T>
RangeLoops<Key<T>> range_loops(bool signs, bool finite) {
  if (signs && finite) return {measure_lines<T, true, true>, measure_columns<T, true, true>};
  if (signs) return {measure_lines<T, true, false>, measure_columns<T, true, false>};
  if (finite) return {measure_lines<T, false, true>, measure_columns<T, false, true>};
  return {measure_lines<T, false, false>, measure_columns<T, false, false>};
}

}  // namespace planq::host::PLANQ_LEVEL
