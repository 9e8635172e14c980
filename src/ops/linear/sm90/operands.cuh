// From a gemm to the arguments of a kernel for sm_90a: the tensor maps of its operands, its
// outputs, and the grid of its tiles.
#pragma once

#include <algorithm>
#include <climits>

#include "cuda/launch.cuh"
#include "ops/linear/gemm.h"
#include "ops/linear/sm90/heuristics.h"
#include "ops/linear/sm90/tiles.cuh"

namespace planq::linear {

// The stride of an operand along the batch, which has at most one axis here.
inline std::int64_t batch_stride(const Gemm& gemm, Moved which) {
  return gemm.batch.rank == 1 ? gemm.batch.axes[0].stride[which] : 0;
}

// An operand as TMA sees it: rows of bytes along k or, if it is transposed, terms of bytes along
// the rows.
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

// Makes the map of an operand. A TMA box has `box_rows` rows or, if the operand is transposed,
// kTransposedTerms terms.
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

// Whether four neighbours are always aligned to be one vector, or two of 16 bytes.
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

// Fills in the arguments of a tile kernel. Returns false if TMA cannot read an operand, or if there
// are too many tiles to be numbered. `rows`: of a tile.
inline bool fill_tiles(const Gemm& gemm, int rows, sm90::TileArgs& args) {
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
  sm90::TileGrid& grid = args.grid;
  grid.down = static_cast<int>(cuda::ceil_div(gemm.m, rows));
  grid.across = static_cast<int>(cuda::ceil_div(gemm.n, sm90::kTileColumns));
  grid.band = std::min(sm90::kBand * sm90::kTileRows / rows, grid.down);
  if (!can_be_numbered(grid.down, grid.across, gemm.batch.size())) return false;
  grid.count =
      static_cast<std::uint32_t>(std::int64_t{grid.down} * grid.across * gemm.batch.size());
  return true;
}
// Whether no kernel for sm_90a takes a gemm.
inline bool is_outside(const Gemm& gemm) {
  constexpr std::int64_t kMost = INT_MAX / 2;
  return gemm.k == 0 || gemm.m > kMost || gemm.n > kMost || gemm.batch.rank > 1 ||
         gemm.batch.size() > kMost;
}

}  // namespace planq::linear
