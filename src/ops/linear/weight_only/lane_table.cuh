// What two 4-bit codes in a byte stand for, from a table in shared memory in which every lane of a
// warp reads banks of its own: one look-up for two numbers, whatever the codes.
#pragma once

#include "ops/linear/weight_only/pair_table.cuh"

namespace planq::linear {

// By byte: the values of its codes in the order of their terms, a copy for each lane. The table
// lies at a multiple of its size, so that one instruction makes a look-up's address of the bytes of
// two registers.
class LanePairTable {
 public:
  static constexpr std::uint32_t kBytes = 65536;

  // Looks up the byte lane % 4 of words.
  __device__ __forceinline__ explicit LanePairTable(cuda::SharedAddress table)
      : own_(table | threadIdx.x % cuda::kWarp * static_cast<std::uint32_t>(sizeof(float2))),
        selector_(0x7604 | threadIdx.x % 4 << 4) {
    cuda::keep(own_);
    cuda::keep(selector_);
  }

  // By all threads of the block, which wait afterwards.
  static __device__ __forceinline__ void fill(float2* table, const CodesArgs& args, int threads) {
    const int first = args.codes.nibble_order == NibbleOrder::HighFirst ? 4 : 0;
    const float own = value_of(args, threadIdx.x % 16);
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < 256 * cuda::kWarp; i += threads) {
      const int byte = i / cuda::kWarp;
      table[i] = {__shfl_sync(cuda::kAllLanes, own, byte >> first & 15),
                  __shfl_sync(cuda::kAllLanes, own, byte >> (4 - first) & 15)};
    }
  }

  __device__ __forceinline__ float2 at(std::uint32_t word) const {
    return cuda::load_shared_pair(__byte_perm(word, own_, selector_));
  }

 private:
  cuda::SharedAddress own_;
  std::uint32_t selector_;
};

}  // namespace planq::linear
