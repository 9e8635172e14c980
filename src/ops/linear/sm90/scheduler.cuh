// Which tiles of the output a block computes, in which order. This knows nothing of operands or
// outputs.
#pragma once

#include <cstdint>

namespace planq::linear::sm90 {

// The tiles of a gemm: `down` along the rows, `across` along the columns. They are numbered in
// bands of `band` rows of tiles, and column by column within a band, so that tiles which run at the
// same time share operands in the L2 cache.
struct TileGrid {
  int down, across, band;
  std::uint32_t count;  // tiles of all gemms of the batch, below 2^31
};

struct TilePlace {
  int down, across, batch;

  // The first row of a tile of so many rows, and where the rows of all tiles end.
  __device__ __forceinline__ int first_row(int tile_rows) const { return down * tile_rows; }
  __device__ __forceinline__ std::int64_t end_row(std::int64_t rows) const { return rows; }
};
__device__ __forceinline__ TilePlace tile_place(const TileGrid& grid, std::uint32_t index) {
  const auto area = static_cast<std::uint32_t>(grid.down) * static_cast<std::uint32_t>(grid.across);
  const auto batch = static_cast<int>(index / area);
  const auto inside = index - static_cast<std::uint32_t>(batch) * area;
  const auto full = static_cast<std::uint32_t>(grid.band) * static_cast<std::uint32_t>(grid.across);
  const int top = static_cast<int>(inside / full) * grid.band;
  const int height = min(grid.band, grid.down - top);
  const auto rest = static_cast<int>(inside % full);
  return {top + rest % height, rest / height, batch};
}

// The tiles of a block, or of one of its groups: every `step` of them from number `first` on.
class TileSchedule {
 public:
  __device__ __forceinline__ TileSchedule(const TileGrid& grid, std::uint32_t first,
                                          std::uint32_t step)
      : grid_(grid), index_(blockIdx.x + first * gridDim.x), step_(step * gridDim.x) {}

  __device__ __forceinline__ bool has_tile() const { return index_ < grid_.count; }
  // Whether the block has another tile behind this one, for any of its groups.
  __device__ __forceinline__ bool has_next() const { return index_ + gridDim.x < grid_.count; }
  __device__ __forceinline__ TilePlace place() const { return tile_place(grid_, index_); }
  __device__ __forceinline__ void advance() { index_ += step_; }

 private:
  const TileGrid& grid_;
  std::uint32_t index_, step_;
};

}  // namespace planq::linear::sm90
