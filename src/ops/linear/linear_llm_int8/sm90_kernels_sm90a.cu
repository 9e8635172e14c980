// The kernels of sm90/int8.cuh for products with outliers.
#include "ops/linear/sm80/launch.h"
#include "ops/linear/sm90/launch.h"
#include "ops/linear/sm90/operands.cuh"

namespace planq::linear {
namespace {

wgmma::Listed listed_of(const Product& product) {
  const Outliers& outliers = product.epilogue.outliers;
  wgmma::Listed listed;
  listed.index = outliers.index;
  listed.count = outliers.count;
  listed.values = outliers.values;
  listed.row = outliers.row;
  listed.batch = batch_stride(product, kMovedOutlier);
  listed.weight = reinterpret_cast<const std::int8_t*>(product.weight.data);
  listed.weight_row = product.weight.row_stride;
  listed.codes = outliers.codes;
  listed.pitch = outliers.pitch;
  listed.capacity = static_cast<std::int32_t>(outliers.capacity);
  listed.terms = static_cast<std::int32_t>(product.k);
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
template <Lists kLists>
bool has_codes_listed(const Product& product) {
  constexpr std::int64_t kRows = 1280, kWeights = std::int64_t{1} << 25;
  return kLists == Lists::Tensor && product.m >= kRows && product.n * product.k >= kWeights;
}

template <Lists kLists>
Status launch(const Call& call, const Product& product, ListCodes list, Bound& bound,
              bool& launched) {
  const Choice choice = wgmma::choose(
      {product.m, product.n, product.k, product.batch.size(), call.device.multiprocessors});
  if (choice.streamed) {
    wgmma::ListedStreamArgs args;
    launched = fill(product, choice, args);
    args.listed = listed_of(product);
    return launched ? launch_streamed<kLists>(args, choice, product.batch.size(), bound)
                    : Status::success();
  }
  wgmma::ListedTileArgs args;
  launched = fill(product, choice, args);
  if (!launched) return Status::success();
  Product listed = product;
  if (has_codes_listed<kLists>(product)) PLANQ_TRY(list(call, listed, bound));
  args.listed = listed_of(listed);
  return launch_tiles<kLists>(args, call.device, bound);
}

}  // namespace

Status preload_listed_wgmma(Accumulation accumulation) {
  if (accumulation == Accumulation::TensorSm90) {
    PLANQ_TRY(preload_tiles<Lists::Tensor>());
    return preload_streamed<Lists::Tensor>();
  }
  PLANQ_TRY(preload_tiles<Lists::Sequential>());
  return preload_streamed<Lists::Sequential>();
}

Status launch_listed_wgmma(const Call& call, const Product& product, Accumulation accumulation,
                           ListCodes list, Bound& bound, bool& launched) {
  launched = product.empty();
  // Sums become float32 where they are; the weight is one for the whole batch.
  if (launched || is_outside(product) || product.output_dtype == DType::Float64 ||
      batch_stride(product, kMovedWeight) != 0)
    return Status::success();
  return accumulation == Accumulation::TensorSm90
             ? launch<Lists::Tensor>(call, product, list, bound, launched)
             : launch<Lists::Sequential>(call, product, list, bound, launched);
}

}  // namespace planq::linear
