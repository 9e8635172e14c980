// From a product to the arguments and the launch of a kernel in sm90/int8.cuh.
#pragma once

#include <algorithm>
#include <climits>

#include "cuda/launch.cuh"
#include "ops/linear/gemm.h"
#include "ops/linear/sm90/heuristics.h"
#include "ops/linear/sm90/int8.cuh"

namespace planq::linear {

using sm90::Choice;
using sm90::OutlierSums;

// What a step along the batch adds; it has at most one axis.
inline std::int64_t batch_stride(const Gemm& gemm, Moved which) {
  return gemm.batch.rank == 1 ? gemm.batch.axes[0].stride[which] : 0;
}

// Rows along k, or of a transposed factor terms along its rows.
inline cuda::ByteMatrices matrices_of(const Gemm& gemm, const GemmOperand& operand,
                                      std::int64_t rows, Moved which) {
  const std::int64_t stride = batch_stride(gemm, which);
  const std::int64_t bytes = detail::element_bytes(operand.dtype);
  const bool transposed = operand.transposed();
  return {operand.data,
          (transposed ? rows : gemm.k) * bytes,
          transposed ? gemm.k : rows,
          stride != 0 ? gemm.batch.size() : 1,
          (transposed ? operand.term_stride : operand.row_stride) * bytes,
          stride * bytes};
}

// The map of a side in boxes of `box_rows` rows, or of so many terms as one that is transposed has.
inline bool encode_operand(const Gemm& gemm, const GemmOperand& operand, std::int64_t rows,
                           Moved which, int box_rows, cuda::TensorMap& map) {
  return cuda::encode_tensor_map(matrices_of(gemm, operand, rows, which),
                                 operand.transposed() ? cuda::kTransposedTerms : box_rows, map);
}
inline bool encode_input(const Gemm& gemm, int box_rows, cuda::TensorMap& map) {
  return encode_operand(gemm, gemm.input, gemm.m, kMovedInput, box_rows, map);
}
inline bool encode_weight(const Gemm& gemm, int box_rows, cuda::TensorMap& map) {
  return encode_operand(gemm, gemm.weight, gemm.n, kMovedWeight, box_rows, map);
}

// Whether four neighbours, wherever they begin, are aligned to what they are moved as.
inline bool has_vectors(const void* data, DType dtype, std::int64_t row, std::int64_t batch) {
  const std::int64_t bytes = detail::element_bytes(dtype);
  const int vector = bytes == 2 ? 8 : 16;
  return cuda::aligned_to(data, vector) && row * bytes % vector == 0 && batch * bytes % vector == 0;
}

inline sm90::Outputs outputs_of(const Gemm& gemm) {
  sm90::Outputs outputs{};
  outputs.epilogue = gemm.epilogue;
  outputs.data = gemm.output;
  outputs.row_stride = gemm.output_row;
  outputs.rows = gemm.m;
  outputs.columns = gemm.n;
  outputs.dtype = gemm.output_dtype;
  outputs.batch_stride = batch_stride(gemm, kMovedOutput);
  outputs.residual_batch = batch_stride(gemm, kMovedResidual);
  outputs.scale_batch = batch_stride(gemm, kMovedScale);
  outputs.zero_point_batch = batch_stride(gemm, kMovedZeroPoint);
  outputs.sum_batch = batch_stride(gemm, kMovedSum);
  outputs.vectors =
      has_vectors(gemm.output, gemm.output_dtype, gemm.output_row, outputs.batch_stride);
  const Epilogue& e = gemm.epilogue;
  outputs.residual_vectors =
      has_vectors(e.residual, e.residual_dtype, e.residual_row, outputs.residual_batch);
  outputs.plain = outputs.vectors && gemm.n % 4 == 0 && !e.residual &&
                  (!gemm.has_scales || e.convention == Convention::Planq);
  return outputs;
}

inline int k_blocks_of(const Gemm& gemm) {
  const std::int64_t bytes = gemm.k * detail::element_bytes(gemm.input.dtype);
  return static_cast<int>(cuda::ceil_div(bytes, cuda::kBoxBytes));
}
inline int step_of(const Gemm& gemm, Moved which) { return batch_stride(gemm, which) != 0 ? 1 : 0; }

inline bool can_be_numbered(int down, int across, std::int64_t times) {
  return static_cast<double>(down) * across * static_cast<double>(times) <= INT_MAX;
}

// A kernel's arguments, or false where the copy engine does not read the factors or tiles are too
// many to be numbered. `rows`: of a tile.
inline bool fill(const Gemm& gemm, int rows, sm90::TileArgs& args) {
  sm90::OperandMaps& operands = args.operands;
  if (!encode_input(gemm, rows, operands.first) ||
      !encode_weight(gemm, sm90::kTileColumns, operands.second))
    return false;
  operands.first_step = step_of(gemm, kMovedInput);
  operands.second_step = step_of(gemm, kMovedWeight);
  operands.k_blocks = k_blocks_of(gemm);
  operands.first_unsigned = gemm.input.dtype == DType::UInt8;
  operands.second_unsigned = gemm.weight.dtype == DType::UInt8;
  args.outputs = outputs_of(gemm);
  args.down = static_cast<int>(cuda::ceil_div(gemm.m, rows));
  args.across = static_cast<int>(cuda::ceil_div(gemm.n, sm90::kTileColumns));
  args.band = std::min(sm90::kBand * sm90::kTileRows / rows, args.down);
  if (!can_be_numbered(args.down, args.across, gemm.batch.size())) return false;
  args.count =
      static_cast<std::uint32_t>(std::int64_t{args.down} * args.across * gemm.batch.size());
  return true;
}
inline bool fill(const Gemm& gemm, const Choice&, sm90::TileArgs& args) {
  return fill(gemm, sm90::kTileRows, args);
}
inline bool fill(const Gemm& gemm, const Choice& choice, sm90::FewRowsArgs& args) {
  sm90::OperandMaps& operands = args.operands;
  if (!encode_weight(gemm, sm90::kFewRowsColumns, operands.first) ||
      !encode_input(gemm, choice.width, operands.second))
    return false;
  operands.first_step = step_of(gemm, kMovedWeight);
  operands.second_step = step_of(gemm, kMovedInput);
  operands.k_blocks = k_blocks_of(gemm);
  operands.first_unsigned = gemm.weight.dtype == DType::UInt8;
  operands.second_unsigned = gemm.input.dtype == DType::UInt8;
  args.outputs = outputs_of(gemm);
  args.down = static_cast<int>(cuda::ceil_div(gemm.m, choice.width));
  args.across = static_cast<int>(cuda::ceil_div(gemm.n, sm90::kFewRowsColumns));
  return can_be_numbered(args.down, args.across, gemm.batch.size() * choice.cluster);
}

// What none of the kernels takes.
inline bool is_outside(const Gemm& gemm) {
  constexpr std::int64_t kMost = INT_MAX / 2;
  return gemm.k == 0 || gemm.m > kMost || gemm.n > kMost || gemm.batch.rank > 1 ||
         gemm.batch.size() > kMost;
}

// Calls visit(kernel, its shared memory) for the kernel of this choice.
template <OutlierSums kLists, class Visit>
Status visit_few_rows(const Choice& choice, const Visit& visit) {
  const auto one = [&]<int kTokens, int kResident>() {
    return visit(sm90::multiply_few_rows<kTokens, kResident, kLists>,
                 sm90::FewRowsShape<kTokens, kResident, kLists != OutlierSums::None>::kSharedBytes);
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
template <OutlierSums kLists>
Status preload_tiles() {
  return cuda::preload(sm90::multiply_tiles<kLists>, sm90::TileShape::kSharedBytes);
}
template <OutlierSums kLists>
Status preload_few_rows() {
  for (const sm90::detail::Cost& cost : sm90::detail::kCosts)
    if (cost.choice.few_rows) PLANQ_TRY(visit_few_rows<kLists>(cost.choice, Preload{}));
  return Status::success();
}

// Launches of a choice, of arguments that are filled.
template <OutlierSums kLists>
Status launch_tiles(sm90::TileArgsOf<kLists>& args, const Device& device, Bound& bound) {
  args.operands.waits = sm90::Waits::Never;
  // Behind another kernel it begins when that has ended: blocks of whole multiprocessors that are
  // started one by one, as these become free, took 30 us more at 2048 x 8192 x 8192.
  const cuda::Grid grid{.blocks = std::min<std::int64_t>(args.count, device.multiprocessors),
                        .threads = dim3(sm90::kTileThreads),
                        .shared_bytes = sm90::TileShape::kSharedBytes};
  return cuda::launch(sm90::multiply_tiles<kLists>, grid, args, bound);
}
template <OutlierSums kLists>
Status launch_few_rows(sm90::FewRowsArgsOf<kLists>& args, const Choice& choice,
                       std::int64_t batches, Bound& bound) {
  args.operands.waits = bound.follows() ? sm90::Waits::ForInput : sm90::Waits::Never;
  cuda::Grid grid{.blocks = std::int64_t{args.down} * args.across * batches * choice.cluster,
                  .threads = dim3(sm90::kFewRowsThreads<kLists>),
                  .cluster = choice.cluster,
                  .dependent = bound.follows()};
  return visit_few_rows<kLists>(choice, [&](auto kernel, int bytes) {
    grid.shared_bytes = bytes;
    return cuda::launch(kernel, grid, args, bound);
  });
}

}  // namespace planq::linear
