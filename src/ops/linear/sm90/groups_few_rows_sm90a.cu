// Which layers the kernels of sm90/groups_few_rows.cuh take, and by which type.
#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "ops/linear/sm90/groups_codes.h"
#include "ops/linear/sm90/groups_few_rows_launch.h"
#include "ops/linear/sm90/groups_launch.h"

namespace planq::linear::sm90::groups::few_rows {
namespace {

inline constexpr int kUnit = 32;  // terms of two steps

bool has_aligned_codes(const WeightCodes& codes) {
  const std::int64_t per_vector = cuda::kVectorBytes * (is_four_bit(codes.dtype) ? 2 : 1);
  // Of a unit that ends beyond k, the rest is any bytes times 0, and floats might be infinite.
  const std::int64_t whole = is_fp8(codes.dtype) ? kUnit : per_vector;
  return codes.layout == WeightLayout::RowMajor && cuda::aligned_to(codes.data, 16) &&
         codes.row_stride % per_vector == 0 && codes.terms % whole == 0;
}
bool has_input(const Gemm& gemm) {
  return !gemm.input.transposed() && cuda::aligned_to(gemm.input.data, 8) &&
         gemm.input.row_stride % 4 == 0;
}

}  // namespace

Status preload(const CodeKind& kind) {
  if (!has_kernels(kind)) return Status::success();
  return kind.values == DType::Float16 ? preload_f16(kind) : preload_bf16(kind);
}

bool takes(const Gemm& gemm) {
  const WeightCodes& codes = *gemm.weight.codes;
  constexpr std::int64_t kMost = cuda::kMaxIndex / 2;
  const bool small = gemm.m <= kMostRows && gemm.k <= kMost && gemm.n <= kMost;
  return small && !gemm.empty() && gemm.k > 0 && gemm.batch.size() == 1 &&
         has_kernels(kind_of(codes)) && has_aligned_codes(codes) && has_statistics(codes) &&
         has_input(gemm);
}

Status launch(const Gemm& gemm, const Device& device, Bound& bound, bool& launched) {
  return gemm.weight.codes->values == DType::Float16 ? launch_f16(gemm, device, bound, launched)
                                                     : launch_bf16(gemm, device, bound, launched);
}

}  // namespace planq::linear::sm90::groups::few_rows
