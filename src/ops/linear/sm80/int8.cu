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
using Large = Tile80<128, 128, 64, 64, 1, 4, 2>;
using Medium = Tile80<64, 64, 32, 32, 2, 4>;
using Small = Tile80<16, 32, 16, 32, 8, 3>;

// More columns than this would be more small tiles than a launch has blocks.
constexpr std::int64_t kMostColumns = std::int64_t{1} << 34;

template <class Tile>
constexpr int kAsyncBytes = std::max(Tile::kAsyncStages * Tile::kStageBytes, Tile::kSumsBytes);
template <class Tile>
constexpr int kAnyBytes = std::max(2 * Tile::kStageBytes, Tile::kSumsBytes);

template <class Tile>
Status preload() {
  PLANQ_TRY(cuda::preload(multiply_async<Tile>, kAsyncBytes<Tile>));
  return cuda::preload(multiply_any<Tile>, kAnyBytes<Tile>);
}

template <class Tile>
Status launch(const Sm80Args& args, Bound& bound) {
  const bool async = both_have_vectors(args);
  return launch_tiles(async ? multiply_async<Tile> : multiply_any<Tile>, Tile::kM, Tile::kN,
                      Tile::kThreads, async ? kAsyncBytes<Tile> : kAnyBytes<Tile>, args, bound);
}

template <class Tile>
Status launch_few_rows_tile(const Sm80Args& args, Bound& bound) {
  return launch_tiles(multiply_few_rows<Tile>, Tile::kInputs, Tile::kWeights, Tile::kThreads, 0,
                      args, bound);
}

}  // namespace

Status preload_sm80() {
  PLANQ_TRY(preload<Large>());
  PLANQ_TRY(preload<Medium>());
  return preload<Small>();
}

Status launch_sm80(const Gemm& gemm, const Device& device, Bound& bound) {
  if (gemm.empty()) return Status::success();
  const Sm80Args args = sm80_args(gemm);
  const bool countable = gemm.n <= kMostColumns;
  if (gemm.m <= Small::kM && countable) return launch<Small>(args, bound);
  const std::int64_t tiles = cuda::ceil_div(gemm.m, Large::kM) * cuda::ceil_div(gemm.n, Large::kN);
  const bool few = tiles * gemm.batch.size() < device.multiprocessors;
  const bool narrow = gemm.m <= Medium::kM || gemm.n <= Medium::kN;
  if (few || (narrow && countable)) return launch<Medium>(args, bound);
  return launch<Large>(args, bound);
}

Status preload_few_rows() {
  PLANQ_TRY((cuda::preload(multiply_few_rows<FewRowsTile<8, 16>>)));
  PLANQ_TRY((cuda::preload(multiply_few_rows<FewRowsTile<8, 32>>)));
  return cuda::preload(multiply_few_rows<FewRowsTile<16, 32>>);
}

Status launch_few_rows(const Gemm& gemm, const Device& device, Bound& bound) {
  if (gemm.empty()) return Status::success();
  const Sm80Args args = sm80_args(gemm);
  if (gemm.m > kMostFewRows || gemm.n > kMostColumns || !both_have_vectors(args))
    return launch_sm80(gemm, device, bound);
  if (gemm.m > 8) return launch_few_rows_tile<FewRowsTile<16, 32>>(args, bound);
  // Half as many rows of the weight for each block, where there would not be enough blocks.
  const std::int64_t blocks = gemm.batch.size() * cuda::ceil_div(gemm.n, 32);
  if (blocks < 2 * device.multiprocessors)
    return launch_few_rows_tile<FewRowsTile<8, 16>>(args, bound);
  return launch_few_rows_tile<FewRowsTile<8, 32>>(args, bound);
}

}  // namespace planq::linear
