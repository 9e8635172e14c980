// What kernels for sm_90a are launched with.
#pragma once

#include <cstdint>

#include "cuda/tensor_map.cuh"
#include "ops/linear/sm90/epilogue.cuh"
#include "ops/linear/sm90/scheduler.cuh"

namespace planq::linear::sm90 {

// For the kernel before, which may still be writing what is read here.
enum class Waits {
  Never,
  ForInput,  // which is all that it writes: the weight's first boxes are on their way meanwhile
  ForBoth,
};

struct OperandMaps {
  cuda::TensorMap first, second;
  // What a batch adds to the third coordinate: 0 where all batches share a factor.
  int first_step, second_step;
  int k_blocks;  // at least 1
  int first_unsigned, second_unsigned;
  Waits waits;
};

// By threads that read what it may be writing.
__device__ __forceinline__ void wait_for_input(const OperandMaps& operands) {
  if (operands.waits != Waits::Never) cuda::wait_for_previous();
}

// Of kernels for many rows on both sides: the input comes first.
struct TileArgs {
  OperandMaps operands;
  Outputs outputs;
  TileGrid grid;
};

// Of kernels for few rows of input: the weight comes first, since wgmma's first operand has 64
// rows at least.
struct FewRowsArgs {
  OperandMaps operands;
  Outputs outputs;
  int down, across;  // clusters, or blocks, along the rows and columns
};

}  // namespace planq::linear::sm90
