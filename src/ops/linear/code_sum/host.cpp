// code_sum on the host.
#include <algorithm>
#include <cstdint>

#include "host/bind.h"
#include "host/thread_pool.h"
#include "ops/linear/code_sum/desc.h"

#define PLANQ_LOOPS "ops/linear/code_sum/code_sum_loops.h"
#include "host/instruction_sets.h"

namespace planq::code_sum {
namespace {

using std::int32_t;
using std::int64_t;

// Codes that make waking a thread worth it, and columns that are summed at a time.
constexpr int64_t kGrain = 1 << 16, kColumns = 2048;

struct Loops {
  int32_t (*sum_line)(const void*, int64_t, DType);
  void (*add_line)(const void*, int64_t, DType, int32_t*);
};

const Loops& loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  static constexpr Loops kAvx512 = {host::avx512::sum_line, host::avx512::add_line};
  static constexpr Loops kAvx2 = {host::avx2::sum_line, host::avx2::add_line};
  if (level == host::Level::Avx512) return kAvx512;
  if (level == host::Level::Avx2) return kAvx2;
#endif
  static constexpr Loops kBaseline = {host::baseline::sum_line, host::baseline::add_line};
  return kBaseline;
}

// The sums of a call: along the last axis, of each line; or along the last but one, of each column
// of a matrix.
struct Sums {
  DType dtype = DType::Int8;
  bool by_line = true;
  int64_t terms = 0, columns = 1;
  int64_t term_stride = 0;  // codes
  IndexSpaceOf<2> space;    // of lines, or of matrices: codes of the input, sums of the output
  int64_t pieces = 1;       // of kColumns columns, in a matrix

  const void* input = nullptr;
  int32_t* output = nullptr;

  const void* at(int64_t code) const {
    return static_cast<const std::uint8_t*>(input) + (is_four_bit(dtype) ? code / 2 : code);
  }
};

Sums sums_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const OperandView &input = call.operands[kInput], &output = call.operands[kOutput];
  const int last = f.shape.rank - 1, axis = static_cast<int>(f.axis);
  const auto codes = [&](int at) {
    return is_four_bit(f.input_dtype) ? 2 * input.strides[at] : input.strides[at];
  };
  Sums sums;
  sums.dtype = f.input_dtype;
  sums.by_line = axis == last;
  sums.terms = f.shape[axis];
  if (!sums.by_line) {
    sums.columns = f.shape[last];
    sums.term_stride = codes(axis);
    sums.pieces = (sums.columns + kColumns - 1) / kColumns;
  }
  for (int i = 0; i < axis; ++i) {
    AxisOf<2> step;
    step.extent = f.shape[i];
    step.stride = {codes(i), sums.by_line && i == output.rank - 1 ? 1 : output.strides[i]};
    sums.space.append(step);
  }
  sums.space.merge();
  sums.input = input.data;
  sums.output = static_cast<int32_t*>(output.data);
  return sums;
}

void sum_lines(const Sums& sums, int64_t first, int64_t last) {
  for_each_piece(sums.space, first, last, [&](const auto& from, int64_t count, const auto& axis) {
    for (int64_t i = 0; i < count; ++i) {
      const auto at = moved(from, axis, i);
      sums.output[at.at[1]] = loops().sum_line(sums.at(at.at[0]), sums.terms, sums.dtype);
    }
  });
}

void sum_columns(const Sums& sums, int64_t piece) {
  const auto at = sums.space.offsets(piece / sums.pieces);
  const int64_t column = piece % sums.pieces * kColumns;
  const int64_t count = std::min(kColumns, sums.columns - column);
  int32_t* to = sums.output + at.at[1] + column;
  std::fill_n(to, count, 0);
  for (int64_t term = 0; term < sums.terms; ++term)
    loops().add_line(sums.at(at.at[0] + term * sums.term_stride + column), count, sums.dtype, to);
}

Status compute(const Call& call, const Stream& stream) {
  const Sums sums = sums_of(call);
  const int64_t codes = std::max<int64_t>(1, sums.terms) *
                        (sums.by_line ? 1 : std::clamp<int64_t>(sums.columns, 1, kColumns));
  host::parallel_for(stream.threads, sums.space.size() * (sums.by_line ? 1 : sums.pieces),
                     std::max<int64_t>(1, kGrain / codes), [&](int64_t first, int64_t last) {
                       if (sums.by_line) return sum_lines(sums, first, last);
                       for (int64_t i = first; i < last; ++i) sum_columns(sums, i);
                     });
  return Status::success();
}

Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }

constexpr Kernel kKernels[] = {
    {.op = "code_sum",
     .body = "lines",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 0,
     .guarantee = {.determinism = Determinism::BitExact,
                   .math = MathPrecision::Int32,
                   .accumulator = DType::Int32,
                   .rounding = Rounding::None,
                   .max_ulp = 0,
                   .error_bound = kNoErrorBound,
                   .batch_invariant = true,
                   .basis = "exact integer sums"},
     .rejects = accept,
     .workspace = no_workspace,
     .prepare = nothing_to_prepare,
     .bind = host::bind<compute>},
};

}  // namespace
}  // namespace planq::code_sum

PLANQ_KERNELS(code_sum, host, kKernels);
