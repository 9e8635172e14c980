// Compares the sums that every instruction set of this processor gives with a plain loop, on gemms
// of all kinds and sizes, in memory that ends where the last code does. Prints how many gemms were
// compared and how many were wrong.
#include "ops/linear/host/int8.cpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

namespace planq::host {
// One thread is enough here.
void parallel_loop(int, std::int64_t count, std::int64_t, LoopBody body, const void* context) {
  body(context, 0, count);
}
}  // namespace planq::host

namespace {

using namespace planq;
using host::Block;
using host::RowSums;
using linear::Gemm;
using linear::GemmOperand;

std::mt19937 random_words(1);

template <class T, std::size_t kCount>
T pick(const T (&values)[kCount]) {
  return values[random_words() % kCount];
}

// An operand in an allocation of its own size.
struct Given {
  std::unique_ptr<std::uint8_t[]> memory;
  GemmOperand operand;

  Given(std::int64_t rows, std::int64_t terms, bool whole) {
    constexpr DType kDTypes[] = {DType::Int8, DType::UInt8, DType::Int4, DType::UInt4};
    constexpr DType kBytes[] = {DType::Int8, DType::UInt8};
    operand.dtype = whole ? pick(kBytes) : pick(kDTypes);
    const bool turned = !whole && random_words() % 2;
    const std::int64_t lines = turned ? terms : rows, codes = turned ? rows : terms;
    const std::int64_t bytes = is_four_bit(operand.dtype) ? (codes + 1) / 2 : codes;
    const std::int64_t pitch = bytes + random_words() % 3;
    const std::int64_t size = (lines - 1) * pitch + bytes;
    memory = std::make_unique<std::uint8_t[]>(size);
    for (std::int64_t i = 0; i < size; ++i) memory[i] = static_cast<std::uint8_t>(random_words());
    operand.data = memory.get();
    const std::int64_t stride = is_four_bit(operand.dtype) ? 2 * pitch : pitch;
    operand.row_stride = turned ? 1 : stride;
    operand.term_stride = turned ? stride : 1;
  }
};

// The codes of an operand row by row, each read once.
std::vector<std::int32_t> codes_of(const GemmOperand& operand, std::int64_t rows, std::int64_t k) {
  std::vector<std::int32_t> codes(rows * k);
  for (std::int64_t i = 0; i < rows * k; ++i) codes[i] = operand.code(i / k, i % k);
  return codes;
}

// What is added here nobody has to watch, and it takes most of the time.
__attribute__((no_sanitize("address"))) std::int32_t dot(const std::int32_t* a,
                                                         const std::int32_t* b, std::int64_t k) {
  std::int32_t sum = 0;
  for (std::int64_t term = 0; term < k; ++term) sum += a[term] * b[term];
  return sum;
}

std::vector<std::int32_t> plain_loop(const Gemm& p) {
  const auto input = codes_of(p.input, p.m, p.k), weight = codes_of(p.weight, p.n, p.k);
  std::vector<std::int32_t> sums(p.m * p.n);
  for (std::int64_t i = 0; i < p.m * p.n; ++i)
    sums[i] = dot(&input[i / p.n * p.k], &weight[i % p.n * p.k], p.k);
  return sums;
}

using Extent = std::int64_t (*)(const Gemm&, int);
using Rows = std::int64_t (*)(const Gemm&, int, bool);
using Compute = void (*)(const Gemm&, Block, RowSums&);

// Blocks row by row or column by column; beside a row nothing may be written.
bool right(const Gemm& p, std::int64_t rows, std::int64_t columns, bool amx, Compute compute,
           const std::vector<std::int32_t>& wanted) {
  const std::int64_t pitch = p.n + random_words() % 2 * 3;
  std::vector<std::int32_t> sums(p.m * pitch, -7), expected = sums;
  for (std::int64_t row = 0; row < p.m; ++row)
    std::copy_n(&wanted[row * p.n], p.n, &expected[row * pitch]);
  Gemm gemm = p;
  gemm.output = reinterpret_cast<std::uint8_t*>(sums.data());
  gemm.output_row = pitch;
  const std::int64_t down = (p.m + rows - 1) / rows, across = (p.n + columns - 1) / columns;
  const bool by_rows = random_words() % 2;
  RowSums known;
  for (std::int64_t i = 0; i < down * across; ++i) {
    const std::int64_t row = rows * (by_rows ? i / across : i % down);
    const std::int64_t column = columns * (by_rows ? i % across : i / down);
    compute(gemm, {row, std::min(rows, p.m - row), column, std::min(columns, p.n - column), amx},
            known);
  }
  return sums == expected;
}

}  // namespace

int main() {
  constexpr std::int64_t kExtents[] = {1, 2, 3, 4, 5, 7, 16, 17, 33, 61, 64, 65, 97, 130, 131, 277};
  constexpr std::int64_t kTerms[] = {1,   2,   3,   5,   31,  64,  65,   127,
                                     129, 255, 256, 257, 300, 516, 1024, 1025};
  int compared = 0, wrong = 0;
  for (int number = 0; number < 600; ++number) {
    // Some fill the registers of AMX.
    const bool whole = number % 4 == 0;
    Gemm p;
    p.m = whole ? 16 + random_words() % 12 * 16 : pick(kExtents);
    p.n = pick(kExtents);
    p.k = whole ? 64 + random_words() % 20 * 64 : pick(kTerms);
    const Given input(p.m, p.k, whole), weight(p.n, p.k, whole);
    p.input = input.operand;
    p.weight = weight.operand;
    const std::vector<std::int32_t> wanted = plain_loop(p);
    const auto check = [&](Rows rows_of, Extent columns_of, Compute compute, bool amx = false) {
      const int threads = 1 + static_cast<int>(random_words() % 3);
      const std::int64_t rows = random_words() % 3 ? rows_of(p, threads, amx) : host::kBlockRows;
      ++compared;
      if (!right(p, rows, columns_of(p, threads), amx, compute, wanted)) ++wrong;
    };
    check(host::baseline::rows_of, host::baseline::columns_of, host::baseline::compute_block);
#if PLANQ_SIMD_X86
    const host::Level level = host::detect_level();
    if (level >= host::Level::Avx2)
      check(host::avx2::rows_of, host::avx2::columns_of, host::avx2::compute_block);
    if (level >= host::Level::Avx512)
      check(host::avx512::rows_of, host::avx512::columns_of, host::avx512::compute_block);
    if (host::has_vnni())
      check(host::avx512_vnni::rows_of, host::avx512_vnni::columns_of,
            host::avx512_vnni::compute_block);
    if (host::has_amx())
      check(host::avx512_vnni::rows_of, host::avx512_vnni::columns_of,
            host::avx512_vnni::compute_block, true);
#endif
  }
  std::printf("%d %d\n", compared, wrong);
}
