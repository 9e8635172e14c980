// Wide tiles of attention, of 64 or 128 rows of one sequence whose heads share a key head: what
// each of them is, and a kernel for those that warpgroups.cuh leaves.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/tensor_map.cuh"
#include "ops/attention/attention/tiles.cuh"

namespace planq::attention {
namespace {

// Rows of a tile with so many columns.
constexpr int wide_rows(std::int64_t columns) { return columns > 128 ? 64 : 128; }
constexpr int kWideBlock = math::kBlockKeys;

struct WideArgs : TileArgs {
  cuda::TensorMap query_map{}, key_map{}, value_map{};
  // Sequences and key heads whose keys and values the L2 cache holds together: blocks work on them
  // at the same time.
  std::uint32_t near_pairs = 1;
  bool whole_pairs = false;      // two neighbours of the output are a word that is aligned
  int tile_tokens = 0;           // tokens of a tile
  int box_keys = 0;              // keys that a box brings
  std::int32_t* left = nullptr;  // of each tile: whether attend_left has to compute it

  __device__ __forceinline__ void store_pair(int64_t at, float first, float second) const {
    if (output_dtype == DType::Float32)
      put_pair(static_cast<float*>(p.output) + at, first, second);
    else if (output_dtype == DType::Float16)
      put_pair(static_cast<math::Half*>(p.output) + at, first, second);
    else
      put_pair(static_cast<math::Bfloat16*>(p.output) + at, first, second);
  }

 private:
  template <class Out>
  __device__ __forceinline__ void put_pair(Out* to, float first, float second) const {
    const Out own[2] = {math::narrow<Out>(first), math::narrow<Out>(second)};
    if (whole_pairs) {
      std::conditional_t<sizeof(Out) == 4, uint2, std::uint32_t> word;
      memcpy(&word, own, sizeof word);
      *reinterpret_cast<decltype(word)*>(to) = word;
    } else {
      to[0] = own[0], to[1] = own[1];
    }
  }
};

// What a block does: the tokens of a tile, and the keys that they see.
struct Job {
  int sequence, key_head, span;  // the only span, or -1
  int number;                    // below 0: there is nothing more to do
  int first_token, tokens;       // of all tokens; in the tile
  int origin, length;            // the token of the first key, were they causal; keys
  int first, end;                // keys that some row sees
  int all_first, all_end;        // keys that all rows see

  __device__ __forceinline__ bool sees() const { return first < end; }
  __device__ __forceinline__ int first_block() const { return first / kWideBlock; }
  __device__ __forceinline__ int end_block() const { return (end + kWideBlock - 1) / kWideBlock; }
  __device__ __forceinline__ bool all_see(int block) const {
    return all_first <= block * kWideBlock && (block + 1) * kWideBlock <= all_end;
  }
};
// The tile of job number `number`, without what its tokens see.
__device__ __forceinline__ Job place_of_job(const WideArgs& args, std::uint32_t number) {
  const auto key_heads = static_cast<std::uint32_t>(args.p.key_heads);
  const std::uint32_t pairs = static_cast<std::uint32_t>(args.p.batch) * key_heads;
  const auto spans = static_cast<std::uint32_t>(args.states ? args.spans : 1);
  const auto tiles = static_cast<std::uint32_t>(args.tiles), near = args.near_pairs;
  const std::uint32_t of_spans = number / spans;
  // The last tiles, which see most keys, come first.
  const std::uint32_t first_pair = of_spans / (near * tiles) * near;
  const std::uint32_t own_pairs = pairs - first_pair < near ? pairs - first_pair : near;
  const std::uint32_t inside = of_spans - first_pair * tiles, of_pairs = inside / own_pairs;
  const std::uint32_t pair = first_pair + inside - of_pairs * own_pairs;
  Job job{};
  job.number = static_cast<int>(number);
  job.span = args.states ? static_cast<int>(number - of_spans * spans) : -1;
  job.sequence = static_cast<int>(pair / key_heads);
  job.key_head = static_cast<int>(pair % key_heads);
  const auto tile = static_cast<int>(tiles - 1 - of_pairs);
  job.first_token = args.p.query_start[job.sequence] + tile * args.tile_tokens;
  return job;
}
// Job number `number` of `args.count`. It has no tokens where the sequence has no such tile, or is
// another kernel's.
__device__ __forceinline__ Job job_of(const WideArgs& args, std::uint32_t number) {
  const Layout& p = args.p;
  Job job = place_of_job(args, number);
  const int begin = p.query_start[job.sequence], end = p.query_start[job.sequence + 1];
  if ((end - begin) * p.group() <= args.others || args.is_lost(job.sequence, job.key_head))
    return job;
  job.tokens = end - job.first_token < args.tile_tokens ? end - job.first_token : args.tile_tokens;
  job.length = p.key_length[job.sequence];
  job.origin = end - job.length;
  if (job.tokens <= 0 || job.length == 0) return job;
  // Keys move on from token to token. Causal ones before the first key see none.
  const int last = job.first_token + job.tokens - 1;
  const int first = p.causal && job.first_token < job.origin ? job.origin : job.first_token;
  const Keys own = p.seen(job.sequence, last);
  job.all_first = static_cast<int>(own.first);
  job.all_end = static_cast<int>(p.seen(job.sequence, job.first_token).end);
  if (first > last) return job;
  job.first = static_cast<int>(p.seen(job.sequence, first).first);
  job.end = static_cast<int>(own.end);
  if (job.span < 0) return job;
  const int from = job.span * math::kSpanKeys, to = from + math::kSpanKeys;
  if (job.first < from) job.first = from;
  if (job.end > to) job.end = to;
  return job;
}

// --- Tiles that were left, and tokens that no tile has

template <class T, class Steps, int kRowTiles, int kColumnTiles>
__global__ void __launch_bounds__(kTileThreads) attend_left(const __grid_constant__ WideArgs args) {
  constexpr int kRows = 16 * kRowTiles;
  const Layout& p = args.p;
  const TileMemory<T, kRows> memory(cuda::dynamic_shared(), p.key.columns, p.value.columns);
  const bool right = *args.starts_are_right != 0;
  if (args.fills)
    for (int64_t i = blockIdx.x; i < p.key_heads; i += gridDim.x) fill_rest(args, right, i);
  if (!right) return;
  Tile<T, tile_type<T>(), Steps, kRowTiles, kColumnTiles> tile(args, memory);
#pragma unroll 1
  for (int64_t number = blockIdx.x; number < args.count; number += gridDim.x) {
    if (args.left[number] == 0) continue;
    const Job job = place_of_job(args, static_cast<std::uint32_t>(number));
    const int64_t rows =
        (p.query_start[job.sequence + 1] - p.query_start[job.sequence]) * p.group();
    const int64_t first = (job.first_token - p.query_start[job.sequence]) * p.group();
    const int64_t end = first + args.tile_tokens * p.group();
#pragma unroll 1
    for (int64_t row = first; row < end && row < rows; row += kRows)
      tile.run(job.sequence, job.key_head, row, job.span);
  }
}

}  // namespace
}  // namespace planq::attention
