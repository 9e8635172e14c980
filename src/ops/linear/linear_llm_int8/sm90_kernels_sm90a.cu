// The kernels of sm90/int8.cuh for products with outliers.
#include "ops/linear/sm80/launch.h"
#include "ops/linear/sm90/launch.h"
#include "ops/linear/sm90/operands.cuh"

namespace planq::linear {
namespace {

sm90::OutlierList listed_of(const Gemm& gemm) {
  const Outliers& outliers = gemm.epilogue.outliers;
  sm90::OutlierList listed;
  listed.index = outliers.index;
  listed.count = outliers.count;
  listed.values = outliers.values;
  listed.row = outliers.row;
  listed.batch = batch_stride(gemm, kMovedOutlier);
  listed.weight = reinterpret_cast<const std::int8_t*>(gemm.weight.data);
  listed.weight_row = gemm.weight.row_stride;
  listed.codes = outliers.codes;
  listed.pitch = outliers.pitch;
  listed.capacity = static_cast<std::int32_t>(outliers.capacity);
  listed.terms = static_cast<std::int32_t>(gemm.k);
  listed.dtype = outliers.dtype;
  const std::int64_t bytes = detail::element_bytes(outliers.dtype);
  listed.vectors = cuda::aligned_to(outliers.values, static_cast<int>(4 * bytes)) &&
                   listed.row % 4 == 0 && listed.batch % 4 == 0 && listed.capacity % 4 == 0;
  return listed;
}

// Whether codes are listed once for all tiles of the same columns, by a kernel before. To pick them
// from the boxes slows the products of every tile down; the ordinary instructions of
// Accumulation::SEQUENTIAL take longer than that, and few or small tiles less than a list. Of
// figures measured on one H100.
template <OutlierSums kLists>
bool has_codes_listed(const Gemm& gemm) {
  constexpr std::int64_t kRows = 1280, kWeights = std::int64_t{1} << 25;
  return kLists == OutlierSums::Tensor && gemm.m >= kRows && gemm.n * gemm.k >= kWeights;
}

template <OutlierSums kLists>
Status launch(const Call& call, const Gemm& gemm, ListOutliers list, Bound& bound, bool& launched) {
  const Choice choice =
      sm90::choose({gemm.m, gemm.n, gemm.k, gemm.batch.size(), call.device.multiprocessors});
  if (choice.few_rows) {
    sm90::OutlierFewRowsArgs args;
    launched = fill(gemm, choice, args);
    args.listed = listed_of(gemm);
    return launched ? launch_few_rows<kLists>(args, choice, gemm.batch.size(), bound)
                    : Status::success();
  }
  sm90::OutlierTileArgs args;
  launched = fill(gemm, choice, args);
  if (!launched) return Status::success();
  Gemm listed = gemm;
  if (has_codes_listed<kLists>(gemm)) PLANQ_TRY(list(call, listed, bound));
  args.listed = listed_of(listed);
  return launch_tiles<kLists>(args, call.device, bound);
}

}  // namespace

Status preload_outliers_sm90(Accumulation accumulation) {
  if (accumulation == Accumulation::TensorSm90) {
    PLANQ_TRY(preload_tiles<OutlierSums::Tensor>());
    return preload_few_rows<OutlierSums::Tensor>();
  }
  PLANQ_TRY(preload_tiles<OutlierSums::Sequential>());
  return preload_few_rows<OutlierSums::Sequential>();
}

Status launch_outliers_sm90(const Call& call, const Gemm& gemm, Accumulation accumulation,
                            ListOutliers list, Bound& bound, bool& launched) {
  launched = gemm.empty();
  // Sums become float32 where they are; the weight is one for the whole batch.
  if (launched || is_outside(gemm) || gemm.output_dtype == DType::Float64 ||
      batch_stride(gemm, kMovedWeight) != 0)
    return Status::success();
  return accumulation == Accumulation::TensorSm90
             ? launch<OutlierSums::Tensor>(call, gemm, list, bound, launched)
             : launch<OutlierSums::Sequential>(call, gemm, list, bound, launched);
}

}  // namespace planq::linear
