// The kernels of wgmma.cuh for products with outliers.
#include "ops/linear/mma_launch.cuh"
#include "ops/linear/wgmma_args.cuh"
#include "ops/linear/wgmma_launch.cuh"

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
  listed.capacity = static_cast<std::int32_t>(outliers.capacity);
  listed.terms = static_cast<std::int32_t>(product.k);
  listed.dtype = outliers.dtype;
  const std::int64_t bytes = detail::element_bytes(outliers.dtype);
  listed.vectors = cuda::aligned_to(outliers.values, static_cast<int>(4 * bytes)) &&
                   listed.row % 4 == 0 && listed.batch % 4 == 0 && listed.capacity % 4 == 0;
  return listed;
}

template <Lists kLists>
Status launch(const Product& product, const Device& device, Bound& bound, bool& launched) {
  const Choice choice = wgmma::choose(
      {product.m, product.n, product.k, product.batch.size(), device.multiprocessors});
  const auto with_list = [&](auto& args) {
    launched = fill(product, choice, args);
    args.listed = listed_of(product);
    return launched;
  };
  if (choice.streamed) {
    wgmma::ListedStreamArgs args;
    return with_list(args) ? launch_streamed<kLists>(args, choice, product.batch.size(), bound)
                           : Status::success();
  }
  wgmma::ListedTileArgs args;
  return with_list(args) ? launch_tiles<kLists>(args, device, bound) : Status::success();
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

Status launch_listed_wgmma(const Product& product, Accumulation accumulation, const Device& device,
                           Bound& bound, bool& launched) {
  launched = product.empty();
  // Sums become float32 where they are; the weight is one for the whole batch.
  if (launched || is_outside(product) || product.output_dtype == DType::Float64 ||
      batch_stride(product, kMovedWeight) != 0)
    return Status::success();
  return accumulation == Accumulation::TensorSm90
             ? launch<Lists::Tensor>(product, device, bound, launched)
             : launch<Lists::Sequential>(product, device, bound, launched);
}

}  // namespace planq::linear
