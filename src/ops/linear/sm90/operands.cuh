// From a product to the arguments and the launch of a kernel in sm90/int8.cuh.
#pragma once

#include <algorithm>
#include <climits>

#include "cuda/launch.cuh"
#include "ops/linear/gemm.h"
#include "ops/linear/sm90/heuristics.h"
#include "ops/linear/sm90/int8.cuh"

namespace planq::linear {

using wgmma::Choice;
using wgmma::Lists;

// What a step along the batch adds; it has at most one axis.
inline std::int64_t batch_stride(const Product& product, Moved operand) {
  return product.batch.rank == 1 ? product.batch.axes[0].stride[operand] : 0;
}

// Rows along k, or of a transposed factor terms along its rows.
inline cuda::ByteMatrices matrices_of(const Product& product, const Factor& factor,
                                      std::int64_t rows, Moved operand) {
  const std::int64_t stride = batch_stride(product, operand);
  const std::int64_t bytes = detail::element_bytes(factor.dtype);
  const bool transposed = factor.transposed();
  return {factor.data,
          (transposed ? rows : product.k) * bytes,
          transposed ? product.k : rows,
          stride != 0 ? product.batch.size() : 1,
          (transposed ? factor.term_stride : factor.row_stride) * bytes,
          stride * bytes};
}

// The map of a side in boxes of `box_rows` rows, or of so many terms as one that is transposed has.
inline bool encode_side(const Product& product, const Factor& factor, std::int64_t rows,
                        Moved operand, int box_rows, cuda::TensorMap& map) {
  return cuda::encode_tensor_map(matrices_of(product, factor, rows, operand),
                                 factor.transposed() ? cuda::kTransposedTerms : box_rows, map);
}
inline bool encode_input(const Product& product, int box_rows, cuda::TensorMap& map) {
  return encode_side(product, product.input, product.m, kMovedInput, box_rows, map);
}
inline bool encode_weight(const Product& product, int box_rows, cuda::TensorMap& map) {
  return encode_side(product, product.weight, product.n, kMovedWeight, box_rows, map);
}

// Whether four neighbours, wherever they begin, are aligned to what they are moved as.
inline bool has_vectors(const void* data, DType dtype, std::int64_t row, std::int64_t batch) {
  const std::int64_t bytes = detail::element_bytes(dtype);
  const int vector = bytes == 2 ? 8 : 16;
  return cuda::aligned_to(data, vector) && row * bytes % vector == 0 && batch * bytes % vector == 0;
}

inline wgmma::Outputs outputs_of(const Product& product) {
  wgmma::Outputs outputs{};
  outputs.epilogue = product.epilogue;
  outputs.data = product.output;
  outputs.row_stride = product.output_row;
  outputs.rows = product.m;
  outputs.columns = product.n;
  outputs.dtype = product.output_dtype;
  outputs.batch_stride = batch_stride(product, kMovedOutput);
  outputs.residual_batch = batch_stride(product, kMovedResidual);
  outputs.scale_batch = batch_stride(product, kMovedScale);
  outputs.zero_point_batch = batch_stride(product, kMovedZeroPoint);
  outputs.sum_batch = batch_stride(product, kMovedSum);
  outputs.vectors =
      has_vectors(product.output, product.output_dtype, product.output_row, outputs.batch_stride);
  const Epilogue& e = product.epilogue;
  outputs.residual_vectors =
      has_vectors(e.residual, e.residual_dtype, e.residual_row, outputs.residual_batch);
  outputs.plain = outputs.vectors && product.n % 4 == 0 && !e.residual &&
                  (!product.has_scales || e.convention == Convention::Planq);
  return outputs;
}

inline int boxes_of(const Product& product) {
  const std::int64_t bytes = product.k * detail::element_bytes(product.input.dtype);
  return static_cast<int>(cuda::ceil_div(bytes, cuda::kBoxBytes));
}
inline int step_of(const Product& product, Moved operand) {
  return batch_stride(product, operand) != 0 ? 1 : 0;
}

inline bool can_be_numbered(int down, int across, std::int64_t times) {
  return static_cast<double>(down) * across * static_cast<double>(times) <= INT_MAX;
}

// A kernel's arguments, or false where the copy engine does not read the factors or tiles are too
// many to be numbered. `rows`: of a tile.
inline bool fill(const Product& product, int rows, wgmma::TileArgs& args) {
  wgmma::Factors& factors = args.factors;
  if (!encode_input(product, rows, factors.first) ||
      !encode_weight(product, wgmma::kTileColumns, factors.second))
    return false;
  factors.first_step = step_of(product, kMovedInput);
  factors.second_step = step_of(product, kMovedWeight);
  factors.k_boxes = boxes_of(product);
  factors.first_unsigned = product.input.dtype == DType::UInt8;
  factors.second_unsigned = product.weight.dtype == DType::UInt8;
  args.outputs = outputs_of(product);
  args.down = static_cast<int>(cuda::ceil_div(product.m, rows));
  args.across = static_cast<int>(cuda::ceil_div(product.n, wgmma::kTileColumns));
  args.band = std::min(wgmma::kBand * wgmma::kTileRows / rows, args.down);
  if (!can_be_numbered(args.down, args.across, product.batch.size())) return false;
  args.count =
      static_cast<std::uint32_t>(std::int64_t{args.down} * args.across * product.batch.size());
  return true;
}
inline bool fill(const Product& product, const Choice&, wgmma::TileArgs& args) {
  return fill(product, wgmma::kTileRows, args);
}
inline bool fill(const Product& product, const Choice& choice, wgmma::StreamArgs& args) {
  wgmma::Factors& factors = args.factors;
  if (!encode_weight(product, wgmma::kStreamColumns, factors.first) ||
      !encode_input(product, choice.width, factors.second))
    return false;
  factors.first_step = step_of(product, kMovedWeight);
  factors.second_step = step_of(product, kMovedInput);
  factors.k_boxes = boxes_of(product);
  factors.first_unsigned = product.weight.dtype == DType::UInt8;
  factors.second_unsigned = product.input.dtype == DType::UInt8;
  args.outputs = outputs_of(product);
  args.down = static_cast<int>(cuda::ceil_div(product.m, choice.width));
  args.across = static_cast<int>(cuda::ceil_div(product.n, wgmma::kStreamColumns));
  return can_be_numbered(args.down, args.across, product.batch.size() * choice.cluster);
}

// What none of the kernels takes.
inline bool is_outside(const Product& product) {
  constexpr std::int64_t kMost = INT_MAX / 2;
  return product.k == 0 || product.m > kMost || product.n > kMost || product.batch.rank > 1 ||
         product.batch.size() > kMost;
}

// Calls visit(kernel, its shared memory) for the kernel of this choice.
template <Lists kLists, class Visit>
Status visit_streamed(const Choice& choice, const Visit& visit) {
  const auto one = [&]<int kTokens, int kResident>() {
    return visit(wgmma::multiply_streamed<kTokens, kResident, kLists>,
                 wgmma::StreamShape<kTokens, kResident, kLists != Lists::None>::kSharedBytes);
  };
  switch (choice.width) {
    case 16:
      return one.template operator()<16, 2>();
    case 32:
      return one.template operator()<32, 2>();
    case 64:
      return one.template operator()<64, 2>();
    default:
      return choice.resident == 2 ? one.template operator()<128, 2>()
                                  : one.template operator()<128, 1>();
  }
}

struct Preload {
  template <class Kernel>
  Status operator()(Kernel* kernel, int bytes) const {
    return cuda::preload(kernel, bytes);
  }
};
template <Lists kLists>
Status preload_tiles() {
  return cuda::preload(wgmma::multiply_tiles<kLists>, wgmma::TileShape::kSharedBytes);
}
template <Lists kLists>
Status preload_streamed() {
  for (const wgmma::detail::Cost& cost : wgmma::detail::kCosts)
    if (cost.choice.streamed) PLANQ_TRY(visit_streamed<kLists>(cost.choice, Preload{}));
  return Status::success();
}

// Launches of a choice, of arguments that are filled.
template <Lists kLists>
Status launch_tiles(wgmma::TileArgsOf<kLists>& args, const Device& device, Bound& bound) {
  args.factors.waits = wgmma::Waits::Never;
  // Behind another kernel it begins when that has ended: blocks of whole multiprocessors that are
  // started one by one, as these become free, took 30 us more at 2048 x 8192 x 8192.
  const cuda::Grid grid{.blocks = std::min<std::int64_t>(args.count, device.multiprocessors),
                        .threads = dim3(wgmma::kTileThreads),
                        .shared_bytes = wgmma::TileShape::kSharedBytes};
  return cuda::launch(wgmma::multiply_tiles<kLists>, grid, args, bound);
}
template <Lists kLists>
Status launch_streamed(wgmma::StreamArgsOf<kLists>& args, const Choice& choice,
                       std::int64_t batches, Bound& bound) {
  args.factors.waits = bound.follows() ? wgmma::Waits::ForInput : wgmma::Waits::Never;
  cuda::Grid grid{.blocks = std::int64_t{args.down} * args.across * batches * choice.cluster,
                  .threads = dim3(wgmma::kStreamThreads<kLists>),
                  .cluster = choice.cluster,
                  .dependent = bound.follows()};
  return visit_streamed<kLists>(choice, [&](auto kernel, int bytes) {
    grid.shared_bytes = bytes;
    return cuda::launch(kernel, grid, args, bound);
  });
}

}  // namespace planq::linear
