// Tiles of experts in the kernels for tiles (int8_tiles.cuh, float_tiles.cuh): a list in the place
// of a grid. A batch of the gemm is then an expert, and its weight alone is another.
#pragma once

#include "core/scratch.h"
#include "ops/linear/sm90/args.cuh"
#include "ops/linear/sm90/expert_tiles.cuh"

namespace planq::linear::sm90 {

// The arguments of a kernel with the list that expert_tiles.cuh has made.
template <class Args>
struct ListedTiles : Args {
  const ExpertTile* tiles;
  const std::int32_t* count;
};

// As TilePlace and TileSchedule, of such a list. Tiles that run at the same time have the same
// columns.
struct ExpertPlace {
  int across, batch;
  ExpertTile tile;

  __device__ __forceinline__ int first_row(int) const { return tile.row; }
  __device__ __forceinline__ std::int64_t end_row(std::int64_t) const { return tile.end; }
};

class ExpertSchedule {
 public:
  __device__ __forceinline__ ExpertSchedule(const ExpertTile* tiles, std::uint32_t listed,
                                            int across, std::uint32_t first, std::uint32_t step)
      : tiles_(tiles),
        listed_(listed),
        count_(listed * static_cast<std::uint32_t>(across)),
        index_(blockIdx.x + first * gridDim.x),
        step_(step * gridDim.x) {}

  __device__ __forceinline__ bool has_tile() const { return index_ < count_; }
  __device__ __forceinline__ bool has_next() const { return index_ + gridDim.x < count_; }
  __device__ __forceinline__ ExpertPlace place() const {
    const ExpertTile tile = tiles_[index_ % listed_];
    return {static_cast<int>(index_ / listed_), tile.expert, tile};
  }
  __device__ __forceinline__ void advance() { index_ += step_; }

 private:
  const ExpertTile* tiles_;
  std::uint32_t listed_, count_, index_, step_;
};

template <class Args>
__device__ __forceinline__ ExpertSchedule schedule_of(const ListedTiles<Args>& args,
                                                      std::uint32_t first, std::uint32_t step) {
  return {args.tiles, static_cast<std::uint32_t>(*args.count), args.grid.across, first, step};
}

// Where the list is: in the workspace.
struct ExpertRoom {
  ExpertTile* tiles;
  std::int32_t* count;

  // `tokens`: rows of a tile.
  ExpertRoom(std::int64_t rows, std::int64_t experts, int tokens, Scratch& scratch)
      : tiles(scratch.take<ExpertTile>(
            static_cast<std::size_t>(most_expert_tiles(rows, experts, tokens)))),
        count(scratch.take<std::int32_t>(1)) {}
};

// Lists the tiles, and makes rows of nobody 0.
inline Status list_tiles(const Experts& experts, int tokens, const ExpertRoom& room,
                         const Device& device, Bound& bound) {
  const Gemm& gemm = experts.gemm;
  const std::int64_t pairs = linear::detail::element_bytes(gemm.output_dtype) / 2;
  const ExpertTileArgs args{experts.offset,
                            static_cast<std::int32_t>(experts.count),
                            static_cast<std::int32_t>(gemm.m),
                            tokens,
                            room.tiles,
                            room.count,
                            reinterpret_cast<std::uint16_t*>(gemm.output),
                            gemm.n * pairs,
                            gemm.output_row * pairs};
  const cuda::Grid grid{.blocks = 1 + std::min<std::int64_t>(gemm.m, device.multiprocessors),
                        .threads = dim3(kMostExperts)};
  return cuda::launch(list_expert_tiles, grid, args, bound);
}

}  // namespace planq::linear::sm90
