// Sums of codes for one instruction set: see host.cpp. No include guard: see
// host/instruction_sets.h.

namespace planq::host::PLANQ_LEVEL {

template <class T>
std::int32_t sum_bytes(const void* from, std::int64_t count) {
  const T* codes = static_cast<const T*>(from);
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += codes[i];
  return sum;
}

// The sum of two codes a byte. int4 codes are summed as 8 more than they are.
inline std::int32_t sum_pairs(const void* from, std::int64_t count, bool is_signed) {
  const auto* pairs = static_cast<const std::uint8_t*>(from);
  const std::uint8_t sign = is_signed ? 0x88 : 0;
  std::uint32_t sum = 0;  // modulo 2^32, until 8 for each int4 code is subtracted
  for (std::int64_t i = 0; i < count; ++i) {
    const auto pair = static_cast<std::uint8_t>(pairs[i] ^ sign);
    sum += (pair & 0xFu) + (pair >> 4);
  }
  return static_cast<std::int32_t>(sum - (is_signed ? 16u * static_cast<std::uint32_t>(count) : 0));
}

template <class T>
void add_bytes(const void* from, std::int64_t count, std::int32_t* sums) {
  const T* codes = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < count; ++i) sums[i] += codes[i];
}

// The same of packed codes, `count` even.
inline void add_pairs(const void* from, std::int64_t count, bool is_signed, std::int32_t* sums) {
  const auto* pairs = static_cast<const std::uint8_t*>(from);
  const std::int32_t sign = is_signed ? 8 : 0;
  for (std::int64_t i = 0; i < count / 2; ++i) {
    sums[2 * i] += ((pairs[i] & 0xF) ^ sign) - sign;
    sums[2 * i + 1] += ((pairs[i] >> 4) ^ sign) - sign;
  }
}

// The sum of `count` neighbouring codes.
inline std::int32_t sum_line(const void* from, std::int64_t count, DType dtype) {
  switch (dtype) {
    case DType::Int8:
      return sum_bytes<std::int8_t>(from, count);
    case DType::UInt8:
      return sum_bytes<std::uint8_t>(from, count);
    default: {
      const std::int32_t sum = sum_pairs(from, count / 2, dtype == DType::Int4);
      return count % 2 == 0
                 ? sum
                 : sum + math::load_integer(from, count - 1, dtype, NibbleOrder::LowFirst);
    }
  }
}

inline void add_line(const void* from, std::int64_t count, DType dtype, std::int32_t* sums) {
  switch (dtype) {
    case DType::Int8:
      return add_bytes<std::int8_t>(from, count, sums);
    case DType::UInt8:
      return add_bytes<std::uint8_t>(from, count, sums);
    default:
      add_pairs(from, count, dtype == DType::Int4, sums);
      if (count % 2 == 1)
        sums[count - 1] += math::load_integer(from, count - 1, dtype, NibbleOrder::LowFirst);
  }
}

}  // namespace planq::host::PLANQ_LEVEL
