// How the operands of a product lie in memory, for the launches of sm80/int8.cu and sm80/float.cu.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/launch.cuh"
#include "ops/linear/sm80/args.h"

namespace planq::linear {

// Whether `data` and everything that a product of the batch moves it by are multiples of `bytes`.
inline bool moves_aligned(const Product& product, Moved which, const void* data, int bytes,
                          std::int64_t bytes_of_two) {
  bool result = cuda::aligned_to(data, bytes);
  for (int i = 0; i < product.batch.rank; ++i)
    result = result && product.batch.axes[i].stride[which] * bytes_of_two / 2 % bytes == 0;
  return result;
}

// Of two numbers of a side, or codes of 4 bits.
inline std::int64_t bytes_of_two(const Factor& factor) {
  return is_four_bit(factor.dtype) ? 1 : 2 * storage_bytes(factor.dtype);
}

// `factor` is that side of the product.
inline MmaSide side_of(const Product& product, const Factor& factor, Moved which) {
  MmaSide side;
  side.packed = is_four_bit(factor.dtype);
  side.extended = factor.dtype == DType::Int4;
  // A single term has no stride, and lies in a row unless the rows are neighbours.
  const bool single = product.k == 1 && factor.row_stride != 1;
  side.transposed = factor.term_stride != 1 && !single;
  const std::int64_t codes = side.transposed ? factor.term_stride : factor.row_stride;
  const std::int64_t of_two = bytes_of_two(factor);
  side.stride = codes * of_two / 2;
  const int word = static_cast<int>(4 * of_two);
  side.aligned =
      side.stride % word == 0 && moves_aligned(product, which, factor.data, word, of_two);
  return side;
}

// Whether a side's rows are 16-byte vectors along K, but for their ends.
inline bool has_vectors(const Product& product, const Factor& factor, const MmaSide& side,
                        Moved which) {
  return !side.transposed && !side.packed && side.stride % 16 == 0 &&
         moves_aligned(product, which, factor.data, 16, bytes_of_two(factor));
}

inline MmaArgs mma_args(const Product& product) {
  MmaArgs args;
  args.product = product;
  args.input = side_of(product, product.input, kMovedInput);
  args.weight = side_of(product, product.weight, kMovedWeight);
  const int unsigned_input = product.input.dtype == DType::UInt8;
  const int unsigned_weight = product.weight.dtype == DType::UInt8;
  args.signs = static_cast<Signs>(unsigned_input + 2 * unsigned_weight);
  const int bytes = storage_bytes(product.output_dtype), vector = std::min(4 * bytes, 16);
  args.stores_vectors = product.output_row * bytes % vector == 0 &&
                        moves_aligned(product, kMovedOutput, product.output, vector, 2 * bytes);
  return args;
}

inline bool both_have_vectors(const MmaArgs& args) {
  const Product& product = args.product;
  return has_vectors(product, product.input, args.input, kMovedInput) &&
         has_vectors(product, product.weight, args.weight, kMovedWeight);
}

// A block for each tile of rows x columns outputs. A launch has as many products of a batch as the
// number of a block can count; tiles are chosen so that it counts those of one product.
inline Status launch_tiles(void (*kernel)(MmaArgs), std::int64_t rows, std::int64_t columns,
                           int threads, int shared_bytes, MmaArgs args, Bound& bound) {
  const std::int64_t across = cuda::ceil_div(args.product.n, columns);
  const std::int64_t tiles = across * cuda::ceil_div(args.product.m, rows);
  args.tiles = static_cast<std::uint32_t>(tiles);
  args.tiles_across = static_cast<std::uint32_t>(across);
  const std::int64_t products = args.product.batch.size();
  const std::int64_t most = std::max<std::int64_t>((std::int64_t{1} << 30) / tiles, 1);
  for (std::int64_t first = 0; first < products; first += most) {
    args.first_product = first;
    cuda::Grid grid;
    grid.blocks = std::min(most, products - first) * tiles;
    grid.threads = dim3(static_cast<unsigned>(threads));
    grid.shared_bytes = shared_bytes;
    PLANQ_TRY(cuda::launch(kernel, grid, args, bound));
  }
  return Status::success();
}

}  // namespace planq::linear
