// The products of codes of 8 bits: what a group of warps adds up over the stages of a ring.
#pragma once

#include <cstdint>

#include "ops/linear/sm90/args.cuh"
#include "ops/linear/sm90/ring.cuh"

namespace planq::linear::sm90 {

// Calls body<first unsigned, second unsigned>().
template <class Body>
__device__ __forceinline__ void with_types(const OperandMaps& operands, const Body& body) {
  if (!operands.first_unsigned)
    operands.second_unsigned ? body.template operator()<false, true>()
                             : body.template operator()<false, false>();
  else
    operands.second_unsigned ? body.template operator()<true, true>()
                             : body.template operator()<true, false>();
}

// kTiles x 64 rows of the first factor with all of the second, over `boxes` stages from the cursor
// on. The sums begin at 0. Every warp gives a stage back. `before(box)` is called before the
// products of a box, `issued()` once the last ones are under way.
template <bool kFirstUnsigned, bool kSecondUnsigned, int kTiles, int kSecond, class Ring,
          class Before, class Issued>
__device__ __forceinline__ void sum_stages(int (&sums)[kTiles][kSecond / 2], const Ring& ring,
                                           typename Ring::Cursor cursor, int boxes,
                                           const Before& before, const Issued& issued) {
  const std::uint64_t first_factor = cuda::factor_of(cuda::shared_address(ring.first(0)));
  const std::uint64_t second_factor = cuda::factor_of(cuda::shared_address(ring.second(0)));
  int add = 0, previous = -1;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
#pragma unroll 1
  for (int box = 0; box < boxes; ++box) {
    before(box);
    ring.full[cursor.stage].wait(cursor.parity);
    const std::uint64_t first = cuda::advanced(first_factor, cursor.stage * Ring::kStageBytes);
    const std::uint64_t second = cuda::advanced(second_factor, cursor.stage * Ring::kStageBytes);
    cuda::begin_products();
#pragma unroll
    for (int byte = 0; byte < cuda::kBoxBytes; byte += cuda::kProductDepth) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        cuda::add_product<kFirstUnsigned, kSecondUnsigned, kSecond>(
            sums[tile], cuda::advanced(first, byte + tile * cuda::kProductRows * cuda::kBoxBytes),
            cuda::advanced(second, byte), byte > 0 ? 1 : add);
    }
    cuda::commit_products();
    add = 1;
    // The products of the stage before are done, those of this one go on.
    cuda::wait_for_products<1>();
    if (previous >= 0) ring.release(previous);
    previous = cursor.stage;
    cursor.advance();
  }
  issued();
  cuda::wait_for_products<0>();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
  if (previous >= 0) ring.release(previous);
}

}  // namespace planq::linear::sm90
