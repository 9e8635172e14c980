// Gemms of 8-bit codes on sm_90a, with outliers.
#include "ops/linear/linear_llm_int8/launch.h"
#include "ops/linear/linear_llm_int8/sm90_addend.cuh"
#include "ops/linear/sm90/int8_launch.cuh"

namespace planq::linear_llm_int8 {
namespace {

using namespace linear;

sm90::OutlierList outlier_list(const Gemm& gemm) {
  const Outliers& outliers = gemm.epilogue.outliers;
  sm90::OutlierList list;
  list.index = outliers.index;
  list.count = outliers.count;
  list.values = outliers.values;
  list.row = outliers.row;
  list.batch = batch_stride(gemm, kMovedOutlier);
  list.weight = reinterpret_cast<const std::int8_t*>(gemm.weight.data);
  list.weight_row = gemm.weight.row_stride;
  list.codes = outliers.codes;
  list.pitch = outliers.pitch;
  list.capacity = static_cast<std::int32_t>(outliers.capacity);
  list.terms = static_cast<std::int32_t>(gemm.k);
  list.dtype = outliers.dtype;
  const std::int64_t bytes = linear::detail::element_bytes(outliers.dtype);
  list.vectors = cuda::aligned_to(outliers.values, static_cast<int>(4 * bytes)) &&
                 list.row % 4 == 0 && list.batch % 4 == 0 && list.capacity % 4 == 0;
  return list;
}

// Whether a kernel before gathers the codes at outlier columns once, for all tiles. Otherwise warps
// pick them from the stages of every tile, which slows every tile down. Gathering pays if there are
// many rows and a large weight, and only in the order of TENSOR_SM90: in SEQUENTIAL the fma take
// longer than picking. Measured on one H100.
template <class Addend>
bool gathers_codes(const Gemm& gemm) {
  constexpr std::int64_t kRows = 1280, kWeights = std::int64_t{1} << 25;
  return std::is_same_v<Addend, sm90::TensorOutliers> && gemm.m >= kRows &&
         gemm.n * gemm.k >= kWeights;
}

template <class Addend>
Status launch(const Call& call, const Gemm& gemm, linear::sm90::Body body, Bound& bound,
              bool& launched) {
  const Choice choice = linear::sm90::choose(
      {gemm.m, gemm.n, gemm.k, gemm.batch.size(), call.device.multiprocessors}, body);
  bound.name_body(name_of(choice.body()));
  if (choice.few_rows) {
    sm90::OutlierFewRowsArgs args;
    launched = fill_few_rows(gemm, choice, args);
    args.outliers = outlier_list(gemm);
    return launched ? linear::launch_few_rows<Addend>(args, choice, gemm.batch.size(), bound)
                    : Status::success();
  }
  sm90::OutlierTileArgs args;
  launched = fill_tiles(gemm, linear::sm90::kTileRows, args);
  if (!launched) return Status::success();
  Gemm gathered = gemm;
  if (gathers_codes<Addend>(gemm)) PLANQ_TRY(launch_gather_codes(call, gathered, bound));
  args.outliers = outlier_list(gathered);
  return linear::launch_tiles<Addend>(args, call.device, bound);
}

}  // namespace

Status preload_sm90(Accumulation accumulation) {
  if (accumulation == Accumulation::TensorSm90) {
    PLANQ_TRY(linear::preload_tiles<sm90::TensorOutliers>());
    return linear::preload_few_rows<sm90::TensorOutliers>();
  }
  PLANQ_TRY(linear::preload_tiles<sm90::SequentialOutliers>());
  return linear::preload_few_rows<sm90::SequentialOutliers>();
}

Status launch_sm90(const Call& call, const Gemm& gemm, Accumulation accumulation,
                   linear::sm90::Body body, Bound& bound, bool& launched) {
  launched = gemm.empty();
  // Sums become float32 in their registers, and the batch has to share one weight.
  if (launched || is_outside(gemm) || gemm.output_dtype == DType::Float64 ||
      batch_stride(gemm, kMovedWeight) != 0)
    return Status::success();
  return accumulation == Accumulation::TensorSm90
             ? launch<sm90::TensorOutliers>(call, gemm, body, bound, launched)
             : launch<sm90::SequentialOutliers>(call, gemm, body, bound, launched);
}

}  // namespace planq::linear_llm_int8
