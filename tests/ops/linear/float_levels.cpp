// Sums of floating gemms by the scalar functions and by every instruction set of this processor.
// The gemms are read from the standard input, to memory that ends where the last number does. Of
// each: six int32 numbers (m, n, k, the types of both operands, what is asked for), the input (m,
// k), the weights (n, k), and for a chain the accumulators (m, n). In the order of GroupsSm90
// weights are codes, after three more numbers: their kind, the size of their groups, and whether
// there are zero points. Row-major codes, scales, zero points and a codebook follow, as far as
// there are such. Written: how many ways there are, and what each gives, (m, n) in float32.
#include "ops/linear/host/float.cpp"

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace planq::host {
// One thread is enough here.
void parallel_loop(int, std::int64_t count, std::int64_t, LoopBody body, const void* context) {
  body(context, 0, count);
}
}  // namespace planq::host

namespace {

using namespace planq;
using linear::Gemm;

enum Asked : std::int32_t { kTensorSm90, kLanes, kChain, kGroups };
enum Kind : std::int32_t { kInt8, kInt4, kUInt4, kCodebook };

struct Given {
  Gemm gemm;
  Asked asked;
  std::unique_ptr<std::uint8_t[]> input, weight;
  std::unique_ptr<float[]> accumulators, results;
  linear::WeightCodes codes;
  std::unique_ptr<float[]> scales, codebook;
  std::unique_ptr<std::int32_t[]> zero_points;

  std::int64_t outputs() const { return gemm.m * gemm.n; }
};

void read(void* to, std::size_t bytes) {
  if (std::fread(to, 1, bytes, stdin) != bytes) std::exit(1);
}

std::unique_ptr<std::uint8_t[]> read_operand(linear::GemmOperand& operand, DType dtype,
                                             std::int64_t rows, std::int64_t terms) {
  const auto bytes = static_cast<std::size_t>(rows * terms * storage_bytes(dtype));
  auto memory = std::make_unique<std::uint8_t[]>(bytes);
  read(memory.get(), bytes);
  operand = {memory.get(), rows == 1 ? 0 : terms, 1, dtype};
  return memory;
}

template <class T>
std::unique_ptr<T[]> read_array(std::int64_t count) {
  auto memory = std::make_unique<T[]>(static_cast<std::size_t>(count));
  read(memory.get(), sizeof(T) * static_cast<std::size_t>(count));
  return memory;
}

// Weights that are codes. Those of a codebook are flat.
void read_codes(Given& given) {
  Gemm& p = given.gemm;
  const auto head = read_array<std::int32_t>(3);
  constexpr DType kDTypes[] = {DType::Int8, DType::Int4, DType::UInt4, DType::UInt4};
  const std::int64_t size = head[1], groups = (p.k + size - 1) / size;
  const bool eight = head[0] == kInt8, blocks = head[0] == kCodebook;
  linear::WeightCodes& codes = given.codes = {};
  codes.dtype = kDTypes[head[0]];
  codes.values = p.weight.dtype;
  codes.rows = p.n;
  codes.terms = p.k;
  codes.row_stride = eight || blocks ? p.k : (p.k + 1) / 2 * 2;
  codes.segment_size = size;
  const std::int64_t count = p.n * codes.row_stride;
  given.weight = read_array<std::uint8_t>(eight ? count : (count + 1) / 2);
  codes.data = given.weight.get();
  given.scales = read_array<float>(p.n * groups);
  codes.has_blocks = blocks;
  codes.scales.stored.absmax = given.scales.get();
  codes.scales.pitch = codes.zero_point_row = groups;
  if (head[2] != 0) {
    given.zero_points = read_array<std::int32_t>(p.n * groups);
    codes.zero_point = given.zero_points.get();
  }
  if (blocks) {
    given.codebook = read_array<float>(16);
    codes.codebook = given.codebook.get();
  }
  p.weight.codes = &codes;
}

bool read_gemm(Given& given) {
  std::int32_t head[6];
  if (std::fread(head, sizeof head, 1, stdin) != 1) return false;
  constexpr DType kDTypes[] = {DType::Float16, DType::BFloat16, DType::Float8E4M3FN,
                               DType::Float8E5M2};
  Gemm& p = given.gemm;
  p = {};
  p.m = head[0];
  p.n = head[1];
  p.k = head[2];
  p.output_row = p.n;
  p.output_dtype = DType::Float32;
  given.asked = static_cast<Asked>(head[5]);
  given.input = read_operand(p.input, kDTypes[head[3]], p.m, p.k);
  p.weight = {.dtype = kDTypes[head[4]]};
  if (given.asked == kGroups)
    read_codes(given);
  else
    given.weight = read_operand(p.weight, kDTypes[head[4]], p.n, p.k);
  given.accumulators = std::make_unique<float[]>(given.outputs());
  given.results = std::make_unique<float[]>(given.outputs());
  if (given.asked == kChain) read(given.accumulators.get(), sizeof(float) * given.outputs());
  return true;
}

void write(const Given& given) {
  std::fwrite(given.results.get(), sizeof(float), given.outputs(), stdout);
}

// --- One output after another --------------------------------------------------------------------

template <class Core>
float one_output(const Given& given, math::FactorRow a, math::FactorRow w, float accumulator) {
  if (given.asked == kLanes) return math::lane_sum(a, w, given.gemm.k);
  if (given.asked == kChain) return math::tensor_core_chain<Core>(accumulator, a, w, given.gemm.k);
  return math::tensor_core_sum<Core>(a, w, given.gemm.k);
}

std::unique_ptr<float[]> widened(const linear::GemmOperand& operand, std::int64_t rows,
                                 std::int64_t terms) {
  auto made = std::make_unique<float[]>(rows * terms);
  host::baseline::floating::widen_line(operand, 0, rows * terms, made.get());
  return made;
}

// The unscaled numbers of a row of codes.
struct CodedRow {
  const linear::WeightCodes* codes;
  std::int64_t row, first;
  int smallest;

  float operator[](std::int64_t i) const {
    return linear::unscaled_at(*codes, codes->codebook, row, first + i);
  }
  CodedRow from(std::int64_t i) const { return {codes, row, first + i, smallest}; }
};

void by_scalars_of_codes(const Given& given) {
  const Gemm& p = given.gemm;
  const int smallest = format_of(p.input.dtype).smallest_exponent();
  const auto a = widened(p.input, p.m, p.k);
  for (std::int64_t i = 0; i < given.outputs(); ++i) {
    const std::int64_t column = i % p.n;
    given.results[i] = math::grouped_sum<math::TensorCore16>(
        math::FactorRow{&a[i / p.n * p.k], smallest}, CodedRow{&given.codes, column, 0, smallest},
        p.k, linear::run_terms(given.codes),
        [&](std::int64_t term) { return linear::scale_at(given.codes, column, term); });
  }
  write(given);
}

void by_scalars(const Given& given) {
  if (given.asked == kGroups) return by_scalars_of_codes(given);
  const Gemm& p = given.gemm;
  const auto a = widened(p.input, p.m, p.k), w = widened(p.weight, p.n, p.k);
  for (std::int64_t i = 0; i < given.outputs(); ++i) {
    const math::FactorRow row{&a[i / p.n * p.k], format_of(p.input.dtype).smallest_exponent()};
    const math::FactorRow column{&w[i % p.n * p.k], format_of(p.weight.dtype).smallest_exponent()};
    given.results[i] =
        is_fp8(p.input.dtype)
            ? one_output<math::TensorCore8>(given, row, column, given.accumulators[i])
            : one_output<math::TensorCore16>(given, row, column, given.accumulators[i]);
  }
  write(given);
}

// --- By vectors ----------------------------------------------------------------------------------

using Compute = void (*)(const Gemm&, Accumulation, host::Block);

Accumulation accumulation_of(Asked asked) {
  if (asked == kGroups) return Accumulation::GroupsSm90;
  return asked == kLanes ? Accumulation::Lanes : Accumulation::TensorSm90;
}

void by_vectors(Given& given, std::int64_t columns, Compute compute) {
  Gemm& p = given.gemm;
  p.output = reinterpret_cast<std::uint8_t*>(given.results.get());
  p.continues = given.asked == kChain;
  std::fill_n(given.results.get(), given.outputs(), -7.0f);
  if (p.continues) std::copy_n(given.accumulators.get(), given.outputs(), given.results.get());
  const Accumulation accumulation = accumulation_of(given.asked);
  const std::int64_t rows = host::block_rows(accumulation);
  for (std::int64_t row = 0; row < p.m; row += rows)
    for (std::int64_t column = 0; column < p.n; column += columns)
      compute(p, accumulation,
              {row, std::min(rows, p.m - row), column, std::min(columns, p.n - column)});
  write(given);
}

}  // namespace

int main() {
  const host::StrictFloat strict;
  std::int32_t ways = 2;
#if PLANQ_SIMD_X86
  const host::Level level = host::detect_level();
  ways += static_cast<std::int32_t>(level);
#endif
  Given given;
  while (read_gemm(given)) {
    std::fwrite(&ways, sizeof ways, 1, stdout);
    by_scalars(given);
    by_vectors(given, host::baseline::floating::kPanelColumns,
               host::baseline::floating::compute_block);
#if PLANQ_SIMD_X86
    if (level >= host::Level::Avx2)
      by_vectors(given, host::avx2::floating::kPanelColumns, host::avx2::floating::compute_block);
    if (level >= host::Level::Avx512)
      by_vectors(given, host::avx512::floating::kPanelColumns,
                 host::avx512::floating::compute_block);
#endif
  }
}
