// How the work of few_rows.cuh is divided: a block's tiles into rounds, and the items of a round
// among warps. An item is a span of one tile or of two neighbours, as Tile::kTiles says; of two,
// the second may not exist.
#pragma once

#include <cstdint>

#include "cuda/memory_access.cuh"
#include "ops/gguf/linear_gguf/chains.cuh"

namespace planq::linear_gguf {

// How a block divides its work and its shared memory. Places count bytes.
inline constexpr int kMostStages = 4, kMostWarps = 16;
struct FewRowsShape {
  std::int32_t warp_shift = 0;                    // a block has 2^it warps
  std::int32_t stages = 0;                        // items of a warp in shared memory, 2 to 4
  std::int32_t tiles = 0, spans = 0;              // of a round
  std::int32_t pitch = 0;                         // of rows of the weight in a stage
  std::int32_t scratch = 0, slots = 0, sums = 0;  // where these begin
  std::int32_t round_bytes = 0;                   // of the sums of a round
  std::int32_t bytes = 0;
};

struct FewRowsArgs {
  Gemm gemm;
  const std::uint8_t* weight_end = nullptr;
  FewRowsShape shape;
  int64_t first_gemm = 0;    // of the batch, in this launch
  std::uint32_t blocks = 1;  // of one gemm
  std::int32_t tiles = 0, spans = 0;
  std::int32_t last_bytes = 0, last_groups = 0;  // of the last span of a row
  std::int32_t whole_spans = 0, whole_tiles = 0;
  std::int32_t rows = 0;  // of the input, at once
  // Of the weight's rows, every 2^it-th begins at an aligned vector: see BoxCopies.
  std::int32_t phase_shift = 0;
  std::int32_t first_column = 0;  // of the boxes' matrix, where the weight begins
  // 16 rows of the weight are within 2^30 bytes, and no two begin in the same vector.
  bool has_usual_stride = false;
  bool has_input_vectors = false;  // rows of the input are aligned vectors
  bool stores_vectors = false;     // four neighbouring outputs are an aligned vector
  bool follows = false;            // a kernel of the same plan is before this one
};

// --- What a block does ---------------------------------------------------------------------------

// The block's tiles: the first blocks have one more than the others.
struct Share {
  int first, behind;

  Share() = default;
  __device__ __forceinline__ explicit Share(const FewRowsArgs& args) {
    const auto blocks = static_cast<int>(args.blocks);
    const int block = static_cast<int>(blockIdx.x % args.blocks);
    const int each = args.tiles / blocks, more = args.tiles % blocks;
    first = block * each + min(block, more);
    behind = first + each + (block < more ? 1 : 0);
  }
};

// A warp's items of a round with `each` items of a span.
struct Part {
  int item, span;  // the first one
  int count;

  Part() = default;
  __device__ __forceinline__ Part(const FewRowsArgs& args, int each, int spans, int warp) {
    const int all = each * spans, first = all * warp >> args.shape.warp_shift;
    count = (all * (warp + 1) >> args.shape.warp_shift) - first;
    span = first / each;
    item = first - span * each;
  }
};

// A chunk of the spans of some tiles, with some rows of the input: where each begins.
struct Round {
  int tile, span = 0, row = 0;

  __device__ __forceinline__ explicit Round(const Share& share) : tile(share.first) {}
  __device__ __forceinline__ bool exists(const Share& share) const { return tile < share.behind; }
  __device__ __forceinline__ int tiles(const FewRowsArgs& args, const Share& share) const {
    return min(args.shape.tiles, share.behind - tile);
  }
  __device__ __forceinline__ int spans(const FewRowsArgs& args) const {
    return min(args.shape.spans, args.spans - span);
  }
  // Whether the sums of its outputs are complete with it.
  __device__ __forceinline__ bool ends_row(const FewRowsArgs& args) const {
    return span + args.shape.spans >= args.spans;
  }
  __device__ __forceinline__ void next(const FewRowsArgs& args) {
    const bool ends = ends_row(args);
    span += args.shape.spans;
    if (!ends) return;
    span = 0;
    row += args.rows;
    if (row < args.gemm.m) return;
    row = 0;
    tile += args.shape.tiles;
  }
  __device__ __forceinline__ bool operator==(const Round& other) const {
    return tile == other.tile && span == other.span && row == other.row;
  }
};

// A warp's way through its items: run by run, which are those of a span in a round.
template <int kTiles>
struct Walk {
  Round round;
  int item = 0, span = 0;  // in the round: the run's first item is of tile item * kTiles
  int left = 0;            // items of the warp in the round from there on

  // full: of a round as large as they are.
  __device__ __forceinline__ Walk(const FewRowsArgs& args, const Share& share, const Part& full,
                                  int warp)
      : round(share), warp_(warp) {
    enter(args, share, full);
  }
  __device__ __forceinline__ bool exists() const { return left > 0; }
  __device__ __forceinline__ int whole_tile() const { return round.tile + item * kTiles; }
  __device__ __forceinline__ int whole_span() const { return round.span + span; }
  // Items of the run.
  __device__ __forceinline__ int count(const FewRowsArgs& args, const Share& share) const {
    return min(left, items(args, share) - item);
  }
  __device__ __forceinline__ void leave_run(const FewRowsArgs& args, const Share& share,
                                            const Part& full) {
    left -= count(args, share);
    item = 0;
    ++span;
    if (left > 0) return;
    round.next(args);
    enter(args, share, full);
  }
  // Goes to the next run of another span, or of other rows of the input.
  __device__ __forceinline__ void leave_span(const FewRowsArgs& args, const Share& share,
                                             const Part& full) {
    const int own = whole_span(), row = round.row;
    do leave_run(args, share, full);
    while (exists() && whole_span() == own && round.row == row);
  }

 private:
  // Of a span.
  __device__ __forceinline__ int items(const FewRowsArgs& args, const Share& share) const {
    return (round.tiles(args, share) + kTiles - 1) / kTiles;
  }
  __device__ __forceinline__ void enter(const FewRowsArgs& args, const Share& share,
                                        const Part& full) {
    for (; round.exists(share); round.next(args)) {
      const int tiles = round.tiles(args, share), spans = round.spans(args);
      if (tiles == args.shape.tiles && spans == args.shape.spans)
        begin(full);
      else
        begin(Part(args, items(args, share), spans, warp_));
      if (left > 0) return;
    }
    left = 0;
  }
  __device__ __forceinline__ void begin(const Part& part) {
    item = part.item;
    span = part.span;
    left = part.count;
  }

  int warp_;
};

}  // namespace planq::linear_gguf
