// Loops over neighbouring columns, for one instruction set: see host.cpp. No include guard: see
// host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

// `to` may be any memory: bytes are written after all of them are made.
template <class T, DType kCodes>
void quantize_columns(const void* from, float scale, std::int64_t count, void* to) {
  float x[kv_cache_append::kChunk];
  std::uint8_t codes[kv_cache_append::kChunk];
  widen<T>(from, count, x);
  for (std::int64_t i = 0; i < count; ++i) codes[i] = math::cache_code<kCodes>(x[i], scale);
  std::memcpy(to, codes, static_cast<std::size_t>(count));
}

// The bits of the largest magnitude.
template <class T>
std::uint32_t find_peak(const void* from, std::int64_t count) {
  float x[kv_cache_append::kChunk];
  widen<T>(from, count, x);
  std::uint32_t peak = 0;
  for (std::int64_t i = 0; i < count; ++i) peak = std::max(peak, math::magnitude_bits(x[i]));
  return peak;
}
template <class T>
inline constexpr kv_cache_append::FindPeak kFindPeak = find_peak<T>;

template <class T>
void copy_columns(const void* from, float, std::int64_t count, void* to) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
}

template <class T, DType kCacheType>
constexpr kv_cache_append::WriteColumns write_columns() {
  if constexpr (kv_cache_append::is_code(kCacheType))
    return quantize_columns<T, kCacheType>;
  else
    return copy_columns<T>;
}

template <class T, DType kCacheType>
inline constexpr kv_cache_append::WriteColumns kWriteColumns = write_columns<T, kCacheType>();

}  // namespace planq::host::PLANQ_LEVEL
