// Vectors of float32, and operands widened to it. No include guard: float_loops.h includes this for
// each instruction set.

namespace planq::host::PLANQ_LEVEL::floating {

using linear::Epilogue;
using linear::Gemm;
using linear::GemmOperand;

// One vector register of the instruction set. The types may alias their elements: arrays are read
// and written as vectors.
typedef float Floats __attribute__((vector_size(PLANQ_VECTOR_BYTES), may_alias));
typedef std::int32_t Ints __attribute__((vector_size(PLANQ_VECTOR_BYTES), may_alias));
typedef std::uint32_t Words __attribute__((vector_size(PLANQ_VECTOR_BYTES), may_alias));
typedef std::int16_t Shorts __attribute__((vector_size(PLANQ_VECTOR_BYTES), may_alias));

constexpr int kFloatLanes = PLANQ_VECTOR_BYTES / 4;
constexpr int kPanelVectors = 2;
constexpr int kPanelColumns = kPanelVectors * kFloatLanes;
constexpr int kPanelTerms = math::kTensorCoreSlice;
// Rows whose sums fit in registers, and rows that are widened at a time: at most kFloatLanes.
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

// --- Operands in float32 -------------------------------------------------------------------------

// math::float8_value without branches. Infinities and NaNs are chosen by a mask: with a condition,
// compilers would multiply under a branch, and vectorize nothing.
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

// `count` elements side by side in memory, from number `first` on.
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

// Terms of some rows, at most kFloatLanes of a transposed operand; zeros fill the slice.
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

// A step of transpose, on two rows that are kStep apart: `one`'s blocks of kStep columns with odd
// numbers change places with `other`'s blocks with even numbers.
template <int kStep, std::size_t... kLane>
inline void exchange(Floats& one, Floats& other, std::index_sequence<kLane...>) {
  constexpr auto kOne = [](int lane) { return lane & kStep ? kFloatLanes + lane - kStep : lane; };
  constexpr auto kOther = [](int lane) { return lane & kStep ? kFloatLanes + lane : lane + kStep; };
  const Floats first = one;
  one = __builtin_shufflevector(first, other, kOne(kLane)...);
  other = __builtin_shufflevector(first, other, kOther(kLane)...);
}
// Transposes a square of vectors.
template <int kStep = kFloatLanes / 2>
inline void transpose(Floats (&rows)[kFloatLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kFloatLanes; ++i)
    if ((i & kStep) == 0)
      exchange<kStep>(rows[i], rows[i + kStep], std::make_index_sequence<kFloatLanes>());
  if constexpr (kStep > 1) transpose<kStep / 2>(rows);
}

// Rows of weights, which are columns of a panel once they are transposed.
using Lines = float[kFloatLanes][kPanelTerms];

// Columns of a panel from the first terms of rows of weights: the first of them goes to `to`.
inline void turn_lines(const Lines& lines, float* to, int terms = kPanelTerms) {
  for (int i = 0; i < terms; i += kFloatLanes) {
    Floats block[kFloatLanes];
#pragma GCC unroll 16
    for (int c = 0; c < kFloatLanes; ++c) block[c] = load(&lines[c][i]);
    transpose(block);
#pragma GCC unroll 16
    for (int c = 0; c < kFloatLanes; ++c)
      *reinterpret_cast<Floats*>(to + (i + c) * kPanelColumns) = block[c];
  }
}

// At most kFloatLanes columns of a panel, from rows of weights. Zeros stand for missing columns.
inline void widen_columns(const GemmOperand& operand, std::int64_t column, std::int64_t columns,
                          std::int64_t term, std::int64_t terms, Lines& lines, float* to) {
  if (columns < kFloatLanes) std::memset(lines, 0, sizeof lines);
  widen_terms(operand, column, columns, term, terms, lines);
  turn_lines(lines, to);
}

// The numbers of a panel; zeros stand for missing columns and terms. `lines`: aligned room.
inline void widen_values(const GemmOperand& operand, std::int64_t column, std::int64_t columns,
                         std::int64_t term, std::int64_t terms, Lines& lines,
                         float (&values)[kPanelTerms][kPanelColumns]) {
  if (!operand.transposed()) {
    for (int c = 0; c < kPanelColumns; c += kFloatLanes)
      widen_columns(operand, column + c, std::clamp<std::int64_t>(columns - c, 0, kFloatLanes),
                    term, terms, lines, values[0] + c);
    return;
  }
  if (columns < kPanelColumns || terms < kPanelTerms) std::memset(values, 0, sizeof values);
  for (std::int64_t i = 0; i < terms; ++i)
    widen_line(operand, column * operand.row_stride + (term + i) * operand.term_stride, columns,
               values[i]);
}

}  // namespace planq::host::PLANQ_LEVEL::floating
