// The kernels of sm80/int8_tiles.cuh and sm80/int8_few_rows.cuh: three tiles, each with sides that
// are copied and with any, and streams for up to eight rows of input, and up to sixteen. One file,
// so that there is one function which stores outputs.

#include <algorithm>

#include "ops/linear/sm80/int8_few_rows.cuh"
#include "ops/linear/sm80/int8_tiles.cuh"
#include "ops/linear/sm80/launch.h"
#include "ops/linear/sm80/operands.h"

namespace planq::linear {
namespace {

// For many outputs; for few, or few rows; for the fewest rows, where warps share K instead.
using Large = MmaTile<128, 128, 64, 64, 1, 4, 2>;
using Medium = MmaTile<64, 64, 32, 32, 2, 4>;
using Small = MmaTile<16, 32, 16, 32, 8, 3>;

// More columns than this would be more small tiles than a launch has blocks.
constexpr std::int64_t kMostColumns = std::int64_t{1} << 34;

template <class Tile>
constexpr int kAsyncBytes = std::max(Tile::kAsyncStages * Tile::kStageBytes, Tile::kSumsBytes);
template <class Tile>
constexpr int kAnyBytes = std::max(2 * Tile::kStageBytes, Tile::kSumsBytes);

template <class Tile>
Status preload() {
  PLANQ_TRY(cuda::preload(mma_async<Tile>, kAsyncBytes<Tile>));
  return cuda::preload(mma_any<Tile>, kAnyBytes<Tile>);
}

template <class Tile>
Status launch(const MmaArgs& args, Bound& bound) {
  const bool async = both_have_vectors(args);
  return launch_tiles(async ? mma_async<Tile> : mma_any<Tile>, Tile::kM, Tile::kN, Tile::kThreads,
                      async ? kAsyncBytes<Tile> : kAnyBytes<Tile>, args, bound);
}

template <class Tile>
Status launch_streams(const MmaArgs& args, Bound& bound) {
  return launch_tiles(stream_weights<Tile>, Tile::kInputs, Tile::kWeights, Tile::kThreads, 0, args,
                      bound);
}

}  // namespace

Status preload_mma() {
  PLANQ_TRY(preload<Large>());
  PLANQ_TRY(preload<Medium>());
  return preload<Small>();
}

Status launch_mma(const Product& product, const Device& device, Bound& bound) {
  if (product.empty()) return Status::success();
  const MmaArgs args = mma_args(product);
  const bool countable = product.n <= kMostColumns;
  if (product.m <= Small::kM && countable) return launch<Small>(args, bound);
  const std::int64_t tiles =
      cuda::ceil_div(product.m, Large::kM) * cuda::ceil_div(product.n, Large::kN);
  const bool few = tiles * product.batch.size() < device.multiprocessors;
  const bool narrow = product.m <= Medium::kM || product.n <= Medium::kN;
  if (few || (narrow && countable)) return launch<Medium>(args, bound);
  return launch<Large>(args, bound);
}

Status preload_stream() {
  PLANQ_TRY((cuda::preload(stream_weights<StreamTile<8, 16>>)));
  PLANQ_TRY((cuda::preload(stream_weights<StreamTile<8, 32>>)));
  return cuda::preload(stream_weights<StreamTile<16, 32>>);
}

Status launch_stream(const Product& product, const Device& device, Bound& bound) {
  if (product.empty()) return Status::success();
  const MmaArgs args = mma_args(product);
  if (product.m > kMostStreamedRows || product.n > kMostColumns || !both_have_vectors(args))
    return launch_mma(product, device, bound);
  if (product.m > 8) return launch_streams<StreamTile<16, 32>>(args, bound);
  // Half as many rows of the weight for each block, where there would not be enough blocks.
  const std::int64_t blocks = product.batch.size() * cuda::ceil_div(product.n, 32);
  if (blocks < 2 * device.multiprocessors) return launch_streams<StreamTile<8, 16>>(args, bound);
  return launch_streams<StreamTile<8, 32>>(args, bound);
}

}  // namespace planq::linear
