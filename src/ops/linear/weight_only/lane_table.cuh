// A table in shared memory that dequantizes two 4-bit codes at once, like PairTable. This one has a
// copy for each lane of a warp, so that every lane has banks of its own whatever the codes. It is
// twice as large.
#pragma once

#include "ops/linear/weight_only/pair_table.cuh"

namespace planq::linear {

// For each byte, the two numbers of its codes in the order of their terms, with a copy for each
// lane. The table is aligned to its size, so that one instruction makes an address from bytes of
// two registers.
class LanePairTable {
 public:
  static constexpr std::uint32_t kBytes = 65536;

  // Looks up byte lane % 4 of words.
  __device__ __forceinline__ explicit LanePairTable(cuda::SharedAddress table)
      : own_(table | threadIdx.x % cuda::kWarp * static_cast<std::uint32_t>(sizeof(float2))),
        selector_(0x7604 | threadIdx.x % 4 << 4) {
    cuda::keep(own_);
    cuda::keep(selector_);
  }

  // Called by all threads of the block, before a barrier.
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
