// Launches of the kernels in sm80/float_tiles.cuh. There are four tiles. For 16-bit numbers each
// tile has kernels for operands that are copied asynchronously, transposed or not, and one for any
// operands. For 8-bit floating codes it has one for any operands.

#include "ops/linear/sm80/float_tiles.cuh"

#include <algorithm>

#include "ops/linear/simt/launch.h"
#include "ops/linear/sm80/operands.h"

namespace planq::linear {
namespace {

// Large: for many outputs. Medium: for fewer. Low: for few rows. Small: for the fewest rows. Two
// blocks of Large fit in the shared memory of every GPU. Its warps hold their sums in registers
// twice: for the current slice, and the total.
using Large = Tile80<128, 64, 64, 32, 1, 4, 2>;
using Medium = Tile80<64, 64, 32, 32, 1, 4, 3>;
using Low = Tile80<32, 64, 16, 32, 1, 6, 4>;
using Small = Tile80<16, 32, 16, 16, 1, 5, 4, 2>;

template <class Tile>
constexpr int kAsyncBytes = std::max(Tile::kAsyncStages * Tile::kStageBytes, Tile::kSumsBytes);
template <class Tile>
constexpr int kAnyBytes = std::max(2 * Tile::kStageBytes, Tile::kSumsBytes);

// `input`, `weight`: whether the operand is transposed.
template <class T, class Tile>
constexpr auto async_kernel(bool input, bool weight) {
  if (input)
    return weight ? multiply_float_async<T, Tile, true, true>
                  : multiply_float_async<T, Tile, true, false>;
  return weight ? multiply_float_async<T, Tile, false, true>
                : multiply_float_async<T, Tile, false, false>;
}

template <class T, class Tile>
Status preload_tile() {
  for (const bool input : {false, true})
    for (const bool weight : {false, true})
      PLANQ_TRY(cuda::preload(async_kernel<T, Tile>(input, weight), kAsyncBytes<Tile>));
  return cuda::preload(multiply_float_any<T, Tile, NumberPieces>, kAnyBytes<Tile>);
}
template <class T>
Status preload_tiles() {
  PLANQ_TRY((preload_tile<T, Large>()));
  PLANQ_TRY((preload_tile<T, Medium>()));
  PLANQ_TRY((preload_tile<T, Low>()));
  return preload_tile<T, Small>();
}
template <class Tile>
Status preload_codes() {
  return cuda::preload(multiply_float_any<math::Half, Tile, CodePieces>, kAnyBytes<Tile>);
}

template <class Tile>
Status launch_kernel(void (*kernel)(Sm80Args), int shared_bytes, const Sm80Args& args,
                     Bound& bound) {
  return launch_tiles(kernel, Tile::kM, Tile::kN, Tile::kThreads, shared_bytes, args, bound);
}
template <class T, class Tile>
Status launch_numbers_of(const Sm80Args& args, Bound& bound) {
  if (args.input.aligned && args.weight.aligned)
    return launch_kernel<Tile>(async_kernel<T, Tile>(args.input.transposed, args.weight.transposed),
                               kAsyncBytes<Tile>, args, bound);
  return launch_kernel<Tile>(multiply_float_any<T, Tile, NumberPieces>, kAnyBytes<Tile>, args,
                             bound);
}
template <class Tile>
Status launch_tile(const Sm80Args& args, Bound& bound) {
  switch (args.gemm.input.dtype) {
    case DType::Float16:
      return launch_numbers_of<math::Half, Tile>(args, bound);
    case DType::BFloat16:
      return launch_numbers_of<math::Bfloat16, Tile>(args, bound);
    default:
      return launch_kernel<Tile>(multiply_float_any<math::Half, Tile, CodePieces>, kAnyBytes<Tile>,
                                 args, bound);
  }
}

}  // namespace

Status preload_float_sm80(DType input) {
  if (input == DType::Float16) return preload_tiles<math::Half>();
  if (input == DType::BFloat16) return preload_tiles<math::Bfloat16>();
  PLANQ_TRY(preload_codes<Large>());
  PLANQ_TRY(preload_codes<Medium>());
  PLANQ_TRY(preload_codes<Low>());
  return preload_codes<Small>();
}

Status launch_float_sm80(const Gemm& gemm, const Device& device, Bound& bound) {
  if (gemm.empty()) return Status::success();
  const Sm80Args args = sm80_args(gemm);
  if (gemm.m <= Small::kM) return launch_tile<Small>(args, bound);
  const std::int64_t blocks = gemm.batch.size() * cuda::ceil_div(gemm.n, Medium::kN);
  const bool idle = blocks < device.multiprocessors;
  if (gemm.m <= Low::kM || (gemm.m <= Medium::kM && idle)) return launch_tile<Low>(args, bound);
  if (gemm.m <= Medium::kM) return launch_tile<Medium>(args, bound);
  const std::int64_t tiles = cuda::ceil_div(gemm.m, Large::kM) * cuda::ceil_div(gemm.n, Large::kN);
  const bool few = tiles * gemm.batch.size() < device.multiprocessors;
  return few ? launch_tile<Medium>(args, bound) : launch_tile<Large>(args, bound);
}

}  // namespace planq::linear
