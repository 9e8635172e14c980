// Products of codes of 8 bits with outliers on sm_90a.
#include "ops/linear/linear_llm_int8/launch.h"
#include "ops/linear/linear_llm_int8/sm90_addend.cuh"
#include "ops/linear/sm90/int8_launch.cuh"

namespace planq::linear_llm_int8 {
namespace {

using namespace linear;

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
  const std::int64_t bytes = linear::detail::element_bytes(outliers.dtype);
  listed.vectors = cuda::aligned_to(outliers.values, static_cast<int>(4 * bytes)) &&
                   listed.row % 4 == 0 && listed.batch % 4 == 0 && listed.capacity % 4 == 0;
  return listed;
}

// Whether codes are listed once for all tiles of the same columns, by a kernel before. To pick them
// from the boxes slows the products of every tile down; the ordinary instructions of
// Accumulation::SEQUENTIAL take longer than that, and few or small tiles less than a list. Of
// figures measured on one H100.
template <class Addend>
bool has_codes_listed(const Gemm& gemm) {
  constexpr std::int64_t kRows = 1280, kWeights = std::int64_t{1} << 25;
  return std::is_same_v<Addend, sm90::TensorOutliers> && gemm.m >= kRows &&
         gemm.n * gemm.k >= kWeights;
}

template <class Addend>
Status launch(const Call& call, const Gemm& gemm, Bound& bound, bool& launched) {
  const Choice choice = linear::sm90::choose(
      {gemm.m, gemm.n, gemm.k, gemm.batch.size(), call.device.multiprocessors});
  if (choice.few_rows) {
    sm90::OutlierFewRowsArgs args;
    launched = fill_few_rows(gemm, choice, args);
    args.listed = listed_of(gemm);
    return launched ? linear::launch_few_rows<Addend>(args, choice, gemm.batch.size(), bound)
                    : Status::success();
  }
  sm90::OutlierTileArgs args;
  launched = fill_tiles(gemm, linear::sm90::kTileRows, args);
  if (!launched) return Status::success();
  Gemm listed = gemm;
  if (has_codes_listed<Addend>(gemm)) PLANQ_TRY(launch_codes(call, listed, bound));
  args.listed = listed_of(listed);
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

Status launch_sm90(const Call& call, const Gemm& gemm, Accumulation accumulation, Bound& bound,
                   bool& launched) {
  launched = gemm.empty();
  // Sums become float32 where they are; the weight is one for the whole batch.
  if (launched || is_outside(gemm) || gemm.output_dtype == DType::Float64 ||
      batch_stride(gemm, kMovedWeight) != 0)
    return Status::success();
  return accumulation == Accumulation::TensorSm90
             ? launch<sm90::TensorOutliers>(call, gemm, bound, launched)
             : launch<sm90::SequentialOutliers>(call, gemm, bound, launched);
}

}  // namespace planq::linear_llm_int8
