// Loops over neighbouring columns, for one instruction set: see columns_host.cpp. No include guard:
// see host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

// `to` may be any memory: bytes are written after all of them are made.
template <class T, DType kCodes>
void quantize_columns(const void* from, float scale, std::int64_t count, void* to) {
  float x[kv_cache::kChunk];
  std::uint8_t codes[kv_cache::kChunk];
  widen<T>(from, count, x);
  for (std::int64_t i = 0; i < count; ++i) codes[i] = math::cache_code<kCodes>(x[i], scale);
  std::memcpy(to, codes, static_cast<std::size_t>(count));
}

// The bits of the largest magnitude.
template <class T>
std::uint32_t find_peak(const void* from, std::int64_t count) {
  float x[kv_cache::kChunk];
  widen<T>(from, count, x);
  std::uint32_t peak = 0;
  for (std::int64_t i = 0; i < count; ++i) peak = std::max(peak, math::magnitude_bits(x[i]));
  return peak;
}

template <class T>
void copy_columns(const void* from, float, std::int64_t count, void* to) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
}

// Of float32.
template <class T>
void round_columns(const void* from, float, std::int64_t count, void* to) {
  narrow<T>(static_cast<const float*>(from), count, to);
}

template <DType kFrom, DType kTo>
inline constexpr kv_cache::WriteColumns kQuantizeColumns =
    quantize_columns<math::Stored<kFrom>, kTo>;

template <DType kFrom>
inline constexpr kv_cache::ColumnLoops kColumnLoops = {find_peak<math::Stored<kFrom>>,
                                                       copy_columns<math::Stored<kFrom>>,
                                                       kQuantizeColumns<kFrom, DType::Int8>,
                                                       kQuantizeColumns<kFrom, DType::Float8E4M3FN>,
                                                       kQuantizeColumns<kFrom, DType::Float8E5M2>,
                                                       round_columns<math::Half>,
                                                       round_columns<math::Bfloat16>};

}  // namespace planq::host::PLANQ_LEVEL
