// The arguments of the kernels for sm_90a.
#pragma once

#include <cstdint>

#include "cuda/tensor_map.cuh"
#include "ops/linear/sm90/epilogue.cuh"
#include "ops/linear/sm90/scheduler.cuh"

namespace planq::linear::sm90 {

// Whether a kernel waits for the one before it in the stream (programmatic dependent launch), which
// may still be writing operands.
enum class Waits {
  Never,
  ForInput,  // the kernel before writes the input alone: the weight's first k blocks are copied
             // before the wait
  ForBoth,
};

struct OperandMaps {
  cuda::TensorMap first, second;
  // What a step along the batch adds to the third coordinate of the map: 1, or 0 if all gemms of
  // the batch share the operand.
  int first_step, second_step;
  int k_blocks;  // k blocks of a gemm, at least 1
  int first_unsigned, second_unsigned;
  Waits waits;
};

// Called by threads that read what the kernel before may be writing, themselves.
__device__ __forceinline__ void wait_for_input(const OperandMaps& operands) {
  if (operands.waits != Waits::Never) cuda::wait_for_previous();
}

// Of kernels for tiles: operand `first` is the input, `second` the weight.
struct TileArgs {
  OperandMaps operands;
  Outputs outputs;
  TileGrid grid;
};

// The tiles of a block. listed_tiles.cuh has another.
__device__ __forceinline__ TileSchedule schedule_of(const TileArgs& args, std::uint32_t first,
                                                    std::uint32_t step) {
  return {args.grid, first, step};
}

// Of kernels for few rows: operand `first` is the weight, since it has 64 rows or more in wgmma,
// and `second` is the input.
struct FewRowsArgs {
  OperandMaps operands;
  Outputs outputs;
  int down, across;  // tiles along the rows and columns, each of which is a block or a cluster
};

}  // namespace planq::linear::sm90
