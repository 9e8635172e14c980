// From a gemm of codes to the launch of a kernel in int8_tiles.cuh or int8_few_rows.cuh. `Addend`:
// see addend.cuh.
//
// int8_tiles.cuh has three tiles, each in two forms: for operands that can be copied
// asynchronously, and for any. int8_few_rows.cuh has kernels for up to 8 and up to 16 rows of
// input.
#pragma once

#include <algorithm>

#include "ops/linear/sm80/int8_few_rows.cuh"
#include "ops/linear/sm80/int8_tiles.cuh"
#include "ops/linear/sm80/launch.h"
#include "ops/linear/sm80/operands.h"

namespace planq::linear::int8_sm80 {
// Large: for many outputs. Medium: for fewer outputs or rows. Small: for the fewest rows; its warps
// split k instead of sharing the tile.
using Large = Tile80<128, 128, 64, 64, 1, 4, 2>;
using Medium = Tile80<64, 64, 32, 32, 2, 4>;
using Small = Tile80<16, 32, 16, 32, 8, 3>;

// With more columns there would be more small tiles than a launch has blocks.
inline constexpr std::int64_t kMostColumns = std::int64_t{1} << 34;

template <class Tile>
inline constexpr int kAsyncBytes =
    std::max(Tile::kAsyncStages * Tile::kStageBytes, Tile::kSumsBytes);
template <class Tile>
inline constexpr int kAnyBytes = std::max(2 * Tile::kStageBytes, Tile::kSumsBytes);

template <class Addend, class Tile>
Status preload_tile() {
  PLANQ_TRY(cuda::preload(multiply_async<Tile, Addend>, kAsyncBytes<Tile>));
  return cuda::preload(multiply_any<Tile, Addend>, kAnyBytes<Tile>);
}

template <class Addend, class Tile>
Status launch_tile(const Sm80Args& args, Bound& bound) {
  const bool async = both_have_vectors(args);
  return launch_tiles(async ? multiply_async<Tile, Addend> : multiply_any<Tile, Addend>, Tile::kM,
                      Tile::kN, Tile::kThreads, async ? kAsyncBytes<Tile> : kAnyBytes<Tile>, args,
                      bound);
}

template <class Addend, class Tile>
Status launch_few_rows_tile(const Sm80Args& args, Bound& bound) {
  return launch_tiles(multiply_few_rows<Tile, Addend>, Tile::kInputs, Tile::kWeights,
                      Tile::kThreads, 0, args, bound);
}

template <class Addend>
Status preload_tiles() {
  PLANQ_TRY((preload_tile<Addend, Large>()));
  PLANQ_TRY((preload_tile<Addend, Medium>()));
  return preload_tile<Addend, Small>();
}

// Takes any gemm.
template <class Addend>
Status launch_any(const Gemm& gemm, const Device& device, Bound& bound) {
  if (gemm.empty()) return Status::success();
  const Sm80Args args = sm80_args(gemm);
  const bool countable = gemm.n <= kMostColumns;
  if (gemm.m <= Small::kM && countable) return launch_tile<Addend, Small>(args, bound);
  const std::int64_t tiles = cuda::ceil_div(gemm.m, Large::kM) * cuda::ceil_div(gemm.n, Large::kN);
  const bool few = tiles * gemm.batch.size() < device.multiprocessors;
  const bool narrow = gemm.m <= Medium::kM || gemm.n <= Medium::kN;
  if (few || (narrow && countable)) return launch_tile<Addend, Medium>(args, bound);
  return launch_tile<Addend, Large>(args, bound);
}

template <class Addend>
Status preload_few_rows() {
  PLANQ_TRY((cuda::preload(multiply_few_rows<FewRowsTile<8, 16>, Addend>)));
  PLANQ_TRY((cuda::preload(multiply_few_rows<FewRowsTile<8, 32>, Addend>)));
  return cuda::preload(multiply_few_rows<FewRowsTile<16, 32>, Addend>);
}

// Takes few rows of input. Operands whose rows are not aligned vectors go to launch_any.
template <class Addend>
Status launch_few_rows(const Gemm& gemm, const Device& device, Bound& bound) {
  if (gemm.empty()) return Status::success();
  const Sm80Args args = sm80_args(gemm);
  if (gemm.m > kMostFewRows || gemm.n > kMostColumns || !both_have_vectors(args)) {
    bound.name_body("mma");
    return launch_any<Addend>(gemm, device, bound);
  }
  if (gemm.m > 8) return launch_few_rows_tile<Addend, FewRowsTile<16, 32>>(args, bound);
  // A block has 16 columns instead of 32 if there would not be enough blocks.
  const std::int64_t blocks = gemm.batch.size() * cuda::ceil_div(gemm.n, 32);
  if (blocks < 2 * device.multiprocessors)
    return launch_few_rows_tile<Addend, FewRowsTile<8, 16>>(args, bound);
  return launch_few_rows_tile<Addend, FewRowsTile<8, 32>>(args, bound);
}

}  // namespace planq::linear::int8_sm80
