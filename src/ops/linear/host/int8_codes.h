// Codes as bytes, and what describes the operands and the sums of a block. No include guard:
// int8_loops.h includes this for each instruction set.

namespace planq::host::PLANQ_LEVEL {

using linear::Epilogue;
using linear::Gemm;
using linear::GemmOperand;

// `count` codes side by side in memory, from number `first` on, as bytes. 8-bit codes are returned
// where they are; 4-bit codes are unpacked to `room`. int4 codes have their sign extended, unless
// `bare`: then they are unpacked as 0 to 15.
inline const std::uint8_t* line_of(const GemmOperand& operand, std::int64_t first,
                                   std::int64_t count, std::uint8_t* room, bool bare = false) {
  if (!is_four_bit(operand.dtype)) return operand.data + first;
  const std::uint8_t* packed = operand.data + first / 2;
  const bool is_signed = operand.dtype == DType::Int4 && !bare;
  for (std::int64_t i = 0; i < count / 2; ++i) {
    const auto codes = math::neighbours_split<std::uint16_t>(packed[i], NibbleOrder::LowFirst);
    const std::uint16_t both = is_signed ? math::nibbles_extended(codes) : codes;
    std::memcpy(room + 2 * i, &both, sizeof both);
  }
  if (count % 2 == 1) {
    const std::uint8_t code = math::low_nibbles(packed[count / 2]);
    room[count - 1] = is_signed ? math::nibbles_extended(code) : code;
  }
  return room;
}

// `count` terms of a row as bytes, where they are or in `room`. A transposed operand's terms are
// gathered.
inline const std::uint8_t* terms_of(const GemmOperand& operand, std::int64_t row,
                                    std::int64_t first, std::int64_t count, std::uint8_t* room) {
  if (!operand.transposed()) return line_of(operand, row * operand.row_stride + first, count, room);
  for (std::int64_t i = 0; i < count; ++i)
    room[i] = static_cast<std::uint8_t>(operand.code(row, first + i));
  return room;
}

// The byte that holds a term of an operand that is not transposed.
inline const std::uint8_t* row_at(const GemmOperand& operand, std::int64_t row, std::int64_t term) {
  const std::int64_t code = row * operand.row_stride + term;
  return operand.data + (is_four_bit(operand.dtype) ? code / 2 : code);
}

// Whether terms_of returns memory as it is.
inline bool lies_in_bytes(const GemmOperand& operand) {
  return !is_four_bit(operand.dtype) && !operand.transposed();
}

// The part of the weights that a panel holds.
struct Slice {
  std::int64_t term, terms;      // of k
  std::int64_t column, columns;  // of n
};

// Where a block's sums are: in a room of their own, or in the output.
struct Sums {
  std::int32_t* data;
  std::int64_t pitch;  // from a row to the next

  std::int32_t* of(std::int64_t row) const { return data + row * pitch; }
};

// Terms of rows of the input, each to be multiplied with the same terms of every row of weights.
// Weights that lie `ahead` of what is read are prefetched, since the processor's own prefetching
// stops at the end of a row.
struct Dots {
  const std::uint8_t* const* inputs = nullptr;
  const std::uint8_t* weights = nullptr;
  std::int64_t step = 0, ahead = 0;     // bytes; `step`: from a row of weights to the next
  std::int64_t columns = 0, count = 0;  // rows of weights, and terms
  std::int64_t pitch = 0;               // of the sums

  const std::uint8_t* weight(std::int64_t column) const { return weights + column * step; }
};

// Rows whose dots are computed together, and the terms of each that are unpacked or gathered at a
// time.
constexpr std::int64_t kDots = 4, kDotTerms = 1024;

}  // namespace planq::host::PLANQ_LEVEL
