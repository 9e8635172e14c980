// From products with small weights to launches of the kernels in small_weights.cuh and
// small_tiles.cuh.
#pragma once

#include <algorithm>
#include <cstdint>
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

// Says where blocks have what, if warps have 8 kGroups rows of the input.
template <int kGroups>
void place_tiles(SmallTilesArgs& args) {
  const SmallWeightsArgs& weights = args.weights;
  constexpr int kSpanGroups = kSpan / kGroup;
  args.spans = (weights.groups + kSpanGroups - 1) / kSpanGroups;
  args.part_shift = 0;
  while (kSmallWarps >> (args.part_shift + 1) >= args.spans) ++args.part_shift;
  args.rows = SmallTile<kGroups>::kInputs << args.part_shift;
  args.input_at = kTileWeights * weights.pitch;
  args.scales_at = args.input_at + args.rows * args.input_pitch();
  args.warps_at = args.scales_at + args.spans * kSpanGroups * args.scale_pitch() * 4;
  args.shared_bytes = args.warps_at + kSmallWarps * SmallTile<kGroups>::kWarpBytes;
}
// Whether blocks of the fewest rows have the shared memory.
inline bool tiles_fit(const SmallWeightsArgs& weights) {
  SmallTilesArgs args{.weights = weights};
  place_tiles<1>(args);
  return args.shared_bytes <= kMostSmallShared;
}
inline int64_t blocks_of(const SmallTilesArgs& args) {
  return args.weights.blocks * cuda::ceil_div(args.weights.gemm.m, int64_t{args.rows});
}
// Whether blocks of so many rows have the shared memory, all rows are more than half of a block
// has, and blocks are enough for the GPU.
inline bool suits(const SmallTilesArgs& args, const Device& device) {
  return args.shared_bytes <= kMostSmallShared && args.rows <= kMostSmallRows &&
         args.weights.gemm.m > args.rows / 2 && blocks_of(args) >= device.multiprocessors;
}

template <int kGroups>
Status launch_tiles(SmallTilesArgs& args, const Device& device, Bound& bound) {
  place_tiles<kGroups>(args);
  if constexpr (kGroups > 1)
    if (!suits(args, device)) return launch_tiles<kGroups / 2>(args, device, bound);
  const cuda::Grid grid = {.blocks = blocks_of(args),
                           .threads = dim3(kSmallThreads),
                           .dependent = has_dependent_launches(device.arch),
                           .shared_bytes = args.shared_bytes};
  return cuda::launch(multiply_small_tiles<kGroups>, grid, args, bound);
}
inline constexpr int kMostTileGroups = 4;

// --- Which weights -------------------------------------------------------------------------------

inline bool takes_small_weight(GgufType type, const Gemm& gemm) {
  if (!is_small_type(type) || gemm.m > kMostSmallRows || gemm.batch.size() != 1 || gemm.k == 0 ||
      gemm.k > int64_t{1} << 20)
    return false;
  const SmallRow row(type, gemm.k);
  if (row.bytes * gemm.n > kMostSmallBytes) return false;
  if (gemm.m == 1) return kSmallWarps * row.pitch <= kMostSmallShared;
  SmallWeightsArgs args;
  args.groups = static_cast<std::int32_t>(gemm.k / kGroup);
  args.pitch = row.pitch;
  return tiles_fit(args);
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
      return launch_tiles<kMostTileGroups>(tiles, device, bound);
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

inline Status preload_small_weights() {
  PLANQ_TRY((cuda::preload(multiply_small_weights<false>, kMostSmallShared)));
  PLANQ_TRY((cuda::preload(multiply_small_tiles<1>, kMostSmallShared)));
  PLANQ_TRY((cuda::preload(multiply_small_tiles<2>, kMostSmallShared)));
  return cuda::preload(multiply_small_tiles<4>, kMostSmallShared);
}
inline Status preload_small_floats() {
  return cuda::preload(multiply_small_weights<true>, kMostSmallShared);
}

}  // namespace planq::linear_gguf
