// Launches of the kernels in sm80/groups_tiles.cuh for one type of numbers. There are four tiles,
// each with a kernel for every length of runs, for an input whose rows are vectors and for any.
#pragma once

#include "ops/linear/sm80/groups_launch.h"
#include "ops/linear/sm80/groups_tiles.cuh"
#include "ops/linear/sm80/operands.h"

namespace planq::linear::groups80 {

// The tiles of float.cu, with shorter rings, since totals take shared memory, too.
using Large = Tile80<128, 64, 64, 32, 1, 3, 2>;
using Medium = Tile80<64, 64, 32, 32, 1, 4, 3>;
using Low = Tile80<32, 64, 16, 32, 1, 5, 4>;
using Small = Tile80<16, 32, 16, 16, 1, 4, 4, 2>;

// Calls visit(kernel, its shared memory).
template <class T, class Tile, int kRun, class Visit>
Status visit_run(bool vectors, const Visit& visit) {
  constexpr int kBytes = GroupShape<Tile, kRun>::kBytes;
  return vectors ? visit(multiply_groups<T, Tile, kRun, VectorInput<Tile>>, kBytes)
                 : visit(multiply_groups<T, Tile, kRun, AnyInput<Tile>>, kBytes);
}
template <class T, class Tile, class Visit>
Status visit_kernel(int run, bool vectors, const Visit& visit) {
  switch (run) {
    case 16:
      return visit_run<T, Tile, 16>(vectors, visit);
    case 32:
      return visit_run<T, Tile, 32>(vectors, visit);
    case 64:
      return visit_run<T, Tile, 64>(vectors, visit);
    default:
      return visit_run<T, Tile, 128>(vectors, visit);
  }
}

template <class T, class Tile>
Status preload_tile() {
  for (const int run : {16, 32, 64, 128})
    for (const bool vectors : {false, true})
      PLANQ_TRY((visit_kernel<T, Tile>(
          run, vectors, [](auto kernel, int bytes) { return cuda::preload(kernel, bytes); })));
  return Status::success();
}
template <class T>
Status preload_type() {
  PLANQ_TRY((preload_tile<T, Large>()));
  PLANQ_TRY((preload_tile<T, Medium>()));
  PLANQ_TRY((preload_tile<T, Low>()));
  return preload_tile<T, Small>();
}

template <class T, class Tile>
Status launch_tile(const GroupArgs& args, Bound& bound) {
  return visit_kernel<T, Tile>(
      run_terms(args.codes), args.input.aligned, [&](auto kernel, int bytes) {
        return launch_tiles(kernel, Tile::kM, Tile::kN, Tile::kThreads, bytes, args, bound);
      });
}
// The smallest tile that holds all rows, and no larger one than keeps all multiprocessors busy.
template <class T>
Status launch_type(const GroupArgs& args, const Device& device, Bound& bound) {
  const Gemm& gemm = args.gemm;
  const auto fills = [&](std::int64_t rows, std::int64_t columns) {
    return cuda::ceil_div(gemm.m, rows) * cuda::ceil_div(gemm.n, columns) * gemm.batch.size() >=
           device.multiprocessors;
  };
  if (gemm.m <= Small::kM) return launch_tile<T, Small>(args, bound);
  if (gemm.m <= Low::kM || (gemm.m <= Medium::kM && !fills(Medium::kM, Medium::kN)))
    return launch_tile<T, Low>(args, bound);
  if (gemm.m <= Medium::kM || !fills(Large::kM, Large::kN))
    return launch_tile<T, Medium>(args, bound);
  return launch_tile<T, Large>(args, bound);
}

}  // namespace planq::linear::groups80
