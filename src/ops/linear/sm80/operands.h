// From a gemm to the arguments of the kernels of sm80: how its operands lie in memory. Used by
// sm80/int8_launch.cuh, sm80/float.cu and sm80/groups_launch.cuh.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/launch.cuh"
#include "ops/linear/sm80/args.h"

namespace planq::linear {

// Whether an operand is aligned to `bytes` in every gemm of the batch.
inline bool moves_aligned(const Gemm& gemm, Moved which, const void* data, int bytes,
                          std::int64_t bytes_of_two) {
  bool result = cuda::aligned_to(data, bytes);
  for (int i = 0; i < gemm.batch.rank; ++i)
    result = result && gemm.batch.axes[i].stride[which] * bytes_of_two / 2 % bytes == 0;
  return result;
}

// The bytes of two elements of an operand: one byte where codes have 4 bits.
inline std::int64_t bytes_of_two(const GemmOperand& operand) {
  return is_four_bit(operand.dtype) ? 1 : 2 * storage_bytes(operand.dtype);
}

// `which`: the operand, for the batch.
inline OperandLayout layout_of(const Gemm& gemm, const GemmOperand& operand, Moved which) {
  OperandLayout layout;
  layout.packed = is_four_bit(operand.dtype);
  layout.extended = operand.dtype == DType::Int4;
  // With a single term (k is 1) the term stride says nothing. The operand counts as rows, unless
  // the terms of neighbouring rows lie side by side.
  const bool single = gemm.k == 1 && operand.row_stride != 1;
  layout.transposed = operand.term_stride != 1 && !single;
  const std::int64_t codes = layout.transposed ? operand.term_stride : operand.row_stride;
  const std::int64_t of_two = bytes_of_two(operand);
  layout.stride = codes * of_two / 2;
  const int word = static_cast<int>(4 * of_two);
  layout.aligned =
      layout.stride % word == 0 && moves_aligned(gemm, which, operand.data, word, of_two);
  return layout;
}

// Whether an operand's rows are 16-byte vectors along k. The last vector of a row may be cut short.
inline bool has_vectors(const Gemm& gemm, const GemmOperand& operand, const OperandLayout& layout,
                        Moved which) {
  return !layout.transposed && !layout.packed && layout.stride % 16 == 0 &&
         moves_aligned(gemm, which, operand.data, 16, bytes_of_two(operand));
}

inline Sm80Args sm80_args(const Gemm& gemm) {
  Sm80Args args;
  args.gemm = gemm;
  args.input = layout_of(gemm, gemm.input, kMovedInput);
  args.weight = layout_of(gemm, gemm.weight, kMovedWeight);
  const int unsigned_input = gemm.input.dtype == DType::UInt8;
  const int unsigned_weight = gemm.weight.dtype == DType::UInt8;
  args.signs = static_cast<Signs>(unsigned_input + 2 * unsigned_weight);
  const int bytes = storage_bytes(gemm.output_dtype), vector = std::min(4 * bytes, 16);
  args.stores_vectors = gemm.output_row * bytes % vector == 0 &&
                        moves_aligned(gemm, kMovedOutput, gemm.output, vector, 2 * bytes);
  return args;
}

inline bool both_have_vectors(const Sm80Args& args) {
  const Gemm& gemm = args.gemm;
  return has_vectors(gemm, gemm.input, args.input, kMovedInput) &&
         has_vectors(gemm, gemm.weight, args.weight, kMovedWeight);
}

// Launches a block for each tile of `rows` x `columns` outputs. A launch takes as many gemms of the
// batch as blocks can be numbered. Tiles are so large that one gemm always fits. Args: Sm80Args, or
// a class derived from it.
template <class Args>
Status launch_tiles(void (*kernel)(Args), std::int64_t rows, std::int64_t columns, int threads,
                    int shared_bytes, Args args, Bound& bound) {
  const std::int64_t across = cuda::ceil_div(args.gemm.n, columns);
  const std::int64_t tiles = across * cuda::ceil_div(args.gemm.m, rows);
  args.tiles = static_cast<std::uint32_t>(tiles);
  args.tiles_across = static_cast<std::uint32_t>(across);
  const std::int64_t gemms = args.gemm.batch.size();
  const std::int64_t most = std::max<std::int64_t>((std::int64_t{1} << 30) / tiles, 1);
  for (std::int64_t first = 0; first < gemms; first += most) {
    args.first_gemm = first;
    cuda::Grid grid;
    grid.blocks = std::min(most, gemms - first) * tiles;
    grid.threads = dim3(static_cast<unsigned>(threads));
    grid.shared_bytes = shared_bytes;
    PLANQ_TRY(cuda::launch(kernel, grid, args, bound));
  }
  return Status::success();
}

}  // namespace planq::linear
