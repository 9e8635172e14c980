// From products with small weights to launches of the kernels in small_weights.cuh and
// small_tiles.cuh.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>

#include "core/architectures.h"
#include "ops/gguf/linear_gguf/small_tiles.cuh"
#include "ops/gguf/linear_gguf/small_weights.cuh"

namespace planq::linear_gguf {

// What a row of a weight takes of shared memory, in bytes.
struct SmallRow {
  int bytes, pitch;

  // It begins anywhere in a vector, and a word behind the last may be read. Rows are an odd number
  // of vectors apart, so that lanes of different rows do not meet in a bank.
  SmallRow(GgufType type, int64_t k)
      : bytes(static_cast<int>(k / gguf::elements_of(type) * gguf::bytes_of(type))),
        pitch(((bytes + 15 + 8 + 15) / 16 | 1) * 16) {}
};

// --- Blocks of several rows ----------------------------------------------------------------------

// Of shared memory, what a block may have that shares a multiprocessor with another one, or that
// has it alone. Every GPU has kMostSmallShared.
inline int most_shared(const Device& device, bool alone) {
  const int half = 113 << 10, whole = static_cast<int>(device.shared_memory_per_block);
  return std::max(alone ? whole : std::min(half, whole), kMostSmallShared);
}

// Says where blocks have what, if warps have 8 kGroups rows of the input. places: of tiles of the
// weight.
template <int kGroups>
void place_tiles(SmallTilesArgs& args, int places) {
  const SmallWeightsArgs& weights = args.weights;
  constexpr int kSpanGroups = kSpan / kGroup, kMostSpanBytes = 288;
  args.spans = (weights.groups + kSpanGroups - 1) / kSpanGroups;
  args.part_shift = 0;
  while (kSmallWarps >> (args.part_shift + 1) >= args.spans) ++args.part_shift;
  args.rows = SmallTile<kGroups>::kInputs << args.part_shift;
  args.lane_shift = std::countr_zero(static_cast<unsigned>(kSmallThreads / args.rows));
  args.weight_bytes = kTileWeights * weights.pitch + kMostSpanBytes;
  args.input_at = places * args.weight_bytes;
  args.scales_at = args.input_at + args.rows * args.input_pitch();
  args.warps_at = args.scales_at + args.spans * kSpanGroups * args.scale_pitch() * 4;
  args.shared_bytes = args.warps_at + kSmallWarps * SmallTile<kGroups>::kWarpBytes;
}
// Blocks of a tile, each with other rows of the input.
inline int64_t blocks_of_tile(const SmallTilesArgs& args) {
  return cuda::ceil_div(args.weights.gemm.m, int64_t{args.rows});
}
// Whether blocks have the shared memory on every GPU, of one tile.
template <int kGroups>
bool tiles_fit(SmallTilesArgs& args) {
  place_tiles<kGroups>(args, 1);
  return args.shared_bytes <= kMostSmallShared;
}
// About what a launch takes of a GPU's time: a warp makes codes for its 8 kGroups rows of the input
// in three times the time that it computes eight. The largest number where blocks of so many rows
// have no room or, but for the fewest, half of a block were without rows.
template <int kGroups>
int64_t cost_of(SmallTilesArgs& args, const Device& device) {
  place_tiles<kGroups>(args, 1);
  const int64_t m = args.weights.gemm.m, processors = std::max(device.multiprocessors, 1);
  const int64_t blocks = args.weights.blocks * blocks_of_tile(args);
  if (args.shared_bytes > most_shared(device, blocks <= processors) || args.rows > kMostSmallRows ||
      (kGroups > 1 && m <= args.rows / 2))
    return std::numeric_limits<int64_t>::max();
  return cuda::ceil_div(blocks, processors) * (3 + kGroups);
}
// Lets blocks have several tiles each where there are more than a GPU has at a time, if a block has
// room for two.
template <int kGroups>
void share_tiles(SmallTilesArgs& args, const Device& device) {
  const std::uint32_t tiles = args.weights.blocks;
  const int64_t most = std::max<int64_t>(2 * device.multiprocessors / blocks_of_tile(args), 1);
  args.tiles_at_once = tiles;
  if (tiles <= most) return;
  place_tiles<kGroups>(args, 2);
  if (args.shared_bytes <= most_shared(device, false))
    args.tiles_at_once = static_cast<std::uint32_t>(cuda::even_blocks(tiles, most));
  else
    place_tiles<kGroups>(args, 1);
}

template <int kGroups>
Status launch_tiles(SmallTilesArgs& args, const Device& device, Bound& bound) {
  place_tiles<kGroups>(args, 1);
  share_tiles<kGroups>(args, device);
  const cuda::Grid grid = {.blocks = args.tiles_at_once * blocks_of_tile(args),
                           .threads = dim3(kSmallThreads),
                           .dependent = has_dependent_launches(device.arch),
                           .shared_bytes = args.shared_bytes};
  return cuda::launch(multiply_small_tiles<kGroups>, grid, args, bound);
}
inline Status launch_best_tiles(SmallTilesArgs& args, const Device& device, Bound& bound) {
  const int64_t one = cost_of<1>(args, device), two = cost_of<2>(args, device),
                four = cost_of<4>(args, device);
  if (one <= std::min(two, four)) return launch_tiles<1>(args, device, bound);
  return two <= four ? launch_tiles<2>(args, device, bound) : launch_tiles<4>(args, device, bound);
}

// --- Which weights -------------------------------------------------------------------------------

inline bool takes_small_weight(GgufType type, const Gemm& gemm) {
  if (!is_small_type(type) || gemm.m > kMostSmallRows || gemm.batch.size() != 1 || gemm.k == 0 ||
      gemm.k > int64_t{1} << 20 || gemm.n > int64_t{1} << 30)
    return false;
  const SmallRow row(type, gemm.k);
  const bool is_small = row.bytes * gemm.n <= kMostSmallBytes;
  if (gemm.m == 1) return is_small && kSmallWarps * row.pitch <= kMostSmallShared;
  SmallTilesArgs args;
  args.weights.groups = static_cast<std::int32_t>(gemm.k / kGroup);
  args.weights.pitch = row.pitch;
  return is_small ? tiles_fit<1>(args) : gemm.m >= kLeastTileRows && tiles_fit<2>(args);
}

// Of codes and scales of one row.
inline int small_input_bytes(const Gemm& gemm) {
  const int64_t bytes = gemm.k + gemm.k / kGroup * int64_t{sizeof(float)};
  return static_cast<int>((bytes + 15) / 16 * 16);
}

inline bool takes_small_floats(std::span<const gguf::Product> products) {
  for (const auto& [type, gemm] : products) {
    if (gemm.empty()) continue;
    if (gemm.m != 1 || !takes_small_weight(type, gemm)) return false;
    const SmallRow row(type, gemm.k);
    if (small_input_bytes(gemm) + kSmallWarps * row.pitch > kMostSmallShared) return false;
  }
  return true;
}

// --- Launches ------------------------------------------------------------------------------------

// Weights of one launch. All have the pitch of the longest row: what is taken fits by itself, so it
// does beside shorter rows.
class SmallWeights {
 public:
  SmallWeights() { std::ranges::fill(args_.first_blocks, ~std::uint32_t{0}); }

  void add(const gguf::Product& product) {
    const auto& [type, gemm] = product;
    if (count_ == 0) begin(gemm);
    const SmallRow row(type, gemm.k);
    args_.pitch = std::max(row.pitch, args_.pitch);
    args_.first_blocks[count_] = args_.blocks;
    args_.blocks += static_cast<std::uint32_t>(
        cuda::ceil_div(gemm.n, int64_t{gemm.m == 1 ? kSmallWarps : kTileWeights}));
    args_.weights[count_++] = {.data = gemm.weight.data,
                               .row_stride = gemm.weight.row_stride,
                               .output = gemm.output,
                               .bias = gemm.epilogue.bias,
                               .residual = gemm.epilogue.residual,
                               .rows = static_cast<std::int32_t>(gemm.n),
                               .row_bytes = row.bytes,
                               .type = type,
                               .stores_vectors = stores_vectors(gemm),
                               .is_aligned = cuda::aligned_to(gemm.weight.data, 8) &&
                                             (gemm.n == 1 || gemm.weight.row_stride % 8 == 0)};
  }

  bool empty() const { return count_ == 0; }

  Status launch(const Device& device, Bound& bound) {
    args_.follows = bound.follows();
    if (args_.gemm.m > 1) {
      SmallTilesArgs tiles{.weights = args_};
      return launch_best_tiles(tiles, device, bound);
    }
    const cuda::Grid grid = {.blocks = args_.blocks,
                             .threads = dim3(kSmallThreads),
                             .dependent = has_dependent_launches(device.arch),
                             .shared_bytes = args_.input_bytes + kSmallWarps * args_.pitch};
    return cuda::launch(
        args_.input_bytes > 0 ? multiply_small_weights<true> : multiply_small_weights<false>, grid,
        args_, bound);
  }

 private:
  // What all weights share.
  void begin(const Gemm& gemm) {
    args_.gemm = gemm;
    args_.groups = static_cast<std::int32_t>(gemm.k / kGroup);
    args_.has_input_vectors = has_input_vectors(gemm);
    if (gemm.input.dtype != DType::Int8) args_.input_bytes = small_input_bytes(gemm);
  }

  SmallWeightsArgs args_;
  int count_ = 0;
};

// At most gguf::kMostProducts.
inline Status launch_small_weights(std::span<const gguf::Product> products, const Device& device,
                                   Bound& bound) {
  SmallWeights weights;
  for (const gguf::Product& product : products)
    if (!product.gemm.empty() && takes_small_weight(product.type, product.gemm))
      weights.add(product);
  return weights.empty() ? Status::success() : weights.launch(device, bound);
}

inline Status preload_small_weights(const Device& device) {
  PLANQ_TRY(cuda::preload(multiply_small_weights<false>, kMostSmallShared));
  const int shared = most_shared(device, true);
  PLANQ_TRY(cuda::preload(multiply_small_tiles<1>, shared));
  PLANQ_TRY(cuda::preload(multiply_small_tiles<2>, shared));
  return cuda::preload(multiply_small_tiles<4>, shared);
}
inline Status preload_small_floats() {
  return cuda::preload(multiply_small_weights<true>, kMostSmallShared);
}

}  // namespace planq::linear_gguf
