// The order of a packed 4-bit weight (n, k): that in which threads hold it as the A operand of
// tensor cores.
//
// Tiles of 64 rows and 64 terms follow one another along k, 2048 bytes each. In a tile, thread l of
// warp w has 16 bytes of its own, the threads one after another. They are four words, one for every
// 16 terms: what the thread holds of the A fragment of mma.sync m16n8k16 whose rows begin at 16 w,
// which is the one that wgmma m64 k16 takes from registers. Nibble j + 4 h of a word is half h of
// the fragment's register j, so that a word shifted right by 4 j has both halves of register j in
// the lowest nibbles of its own halves.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"
#include "core/scope.h"

namespace planq {

struct FragmentOrder {
  static constexpr int kTile = 64, kTileCodes = kTile * kTile, kTileBytes = kTileCodes / 2;

  // The nibble of a tile, low nibbles of a byte first, that holds a code of the tile.
  PLANQ_HD static constexpr int nibble(int row, int term) {
    const int thread = row / 16 * 32 + row % 8 * 4 + term % 8 / 2, word = term / 16;
    return (thread * 4 + word) * 8 + row % 16 / 8 + term % 16 / 8 * 2 + term % 2 * 4;
  }

  // What is stored of a code: of a signed one, its distance from the lowest.
  PLANQ_HD static constexpr int flipped(DType codes) { return codes == DType::Int4 ? 8 : 0; }

  // Down, across, and the codes of each, those beyond the weight among them: what has to be small
  // enough to be counted.
  static Shape tiles(const Shape& weight) {
    return {3, {groups_of(weight[0], kTile), groups_of(weight[1], kTile), kTileCodes}};
  }
  // Of memory: a row for every 64 rows, their tiles side by side.
  static constexpr Rule shape(const char* weight) {
    return axes(groups_of(axis_of(weight, 0), kTile),
                groups_of(axis_of(weight, 1), kTile) * kTileBytes);
  }
};

}  // namespace planq
