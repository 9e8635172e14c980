// The main loop of the kernels for 8-bit codes: a group of warps multiplies the stages of a ring
// and adds up.
#pragma once

#include <cstdint>

#include "ops/linear/sm90/args.cuh"
#include "ops/linear/sm90/ring.cuh"

namespace planq::linear::sm90 {

// Calls body<whether the first operand is unsigned, whether the second is>().
template <class Body>
__device__ __forceinline__ void with_types(const OperandMaps& operands, const Body& body) {
  if (!operands.first_unsigned)
    operands.second_unsigned ? body.template operator()<false, true>()
                             : body.template operator()<false, false>();
  else
    operands.second_unsigned ? body.template operator()<true, true>()
                             : body.template operator()<true, false>();
}

// Multiplies kTiles x 64 rows of the first operand by kSecond rows of the second, over `k_blocks`
// stages from the cursor on. The sums begin at 0. Every warp releases each stage. Calls
// before(k_block) before it issues the wgmma of a k block, and issued() when all are issued.
template <bool kFirstUnsigned, bool kSecondUnsigned, int kTiles, int kSecond, class Ring,
          class Before, class Issued>
__device__ __forceinline__ void sum_stages(int (&sums)[kTiles][kSecond / 2], const Ring& ring,
                                           typename Ring::Cursor cursor, int k_blocks,
                                           const Before& before, const Issued& issued) {
  const std::uint64_t first_descriptor = cuda::descriptor_of(cuda::shared_address(ring.first(0)));
  const std::uint64_t second_descriptor = cuda::descriptor_of(cuda::shared_address(ring.second(0)));
  int add = 0, previous = -1;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
#pragma unroll 1
  for (int k_block = 0; k_block < k_blocks; ++k_block) {
    before(k_block);
    ring.full[cursor.stage].wait(cursor.parity);
    const std::uint64_t first = cuda::advanced(first_descriptor, cursor.stage * Ring::kStageBytes);
    const std::uint64_t second =
        cuda::advanced(second_descriptor, cursor.stage * Ring::kStageBytes);
    cuda::wgmma_fence();
#pragma unroll
    for (int byte = 0; byte < cuda::kBoxBytes; byte += cuda::kWgmmaBytes) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        cuda::wgmma_add_codes<kFirstUnsigned, kSecondUnsigned, kSecond>(
            sums[tile], cuda::advanced(first, byte + tile * cuda::kWgmmaRows * cuda::kBoxBytes),
            cuda::advanced(second, byte), byte > 0 ? 1 : add);
    }
    cuda::wgmma_commit();
    add = 1;
    // The wgmma of the stage before is done; that of this stage is under way.
    cuda::wgmma_wait<1>();
    if (previous >= 0) ring.release(previous);
    previous = cursor.stage;
    cursor.advance();
  }
  issued();
  cuda::wgmma_wait<0>();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
  if (previous >= 0) ring.release(previous);
}

}  // namespace planq::linear::sm90
