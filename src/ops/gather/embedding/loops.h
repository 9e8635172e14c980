// Loops over neighbouring columns of a row, for one instruction set: see host.cpp. No include
// guard: see host/instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

template <class T>
void widen_columns(const void* row, std::int64_t first, std::int64_t count, NibbleOrder,
                   float* to) {
  widen<T>(static_cast<const T*>(row) + first, count, to);
}

inline void widen_bytes(const void* row, std::int64_t first, std::int64_t count, NibbleOrder,
                        float* __restrict to) {
  const std::int8_t* __restrict codes = static_cast<const std::int8_t*>(row) + first;
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(codes[i]);
}

// `first` is even. Each byte becomes two.
inline void widen_nibbles(const void* row, std::int64_t first, std::int64_t count,
                          NibbleOrder order, float* to) {
  const std::uint8_t* __restrict bytes = static_cast<const std::uint8_t*>(row) + first / 2;
  std::uint16_t pairs[embedding::kChunk / 2];
  for (std::int64_t i = 0; i < (count + 1) / 2; ++i)
    pairs[i] =
        math::nibbles_extended(math::neighbours_split(static_cast<std::uint16_t>(bytes[i]), order));
  widen_bytes(pairs, 0, count, order, to);
}

inline void multiply_columns(float by, std::int64_t count, float* values) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = values[i] * by;
}

template <DType kTableType>
constexpr auto widen_table() {
  if constexpr (kTableType == DType::Int8)
    return widen_bytes;
  else if constexpr (kTableType == DType::Int4)
    return widen_nibbles;
  else
    return widen_columns<math::Stored<kTableType>>;
}

template <DType kTableType, class U>
inline constexpr embedding::Loops kRowLoops = {widen_table<kTableType>(), multiply_columns,
                                               narrow<U>};

}  // namespace planq::host::PLANQ_LEVEL
