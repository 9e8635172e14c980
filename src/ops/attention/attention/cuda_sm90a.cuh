// attention on sm_90a: sequences of few rows, of many, and all others have kernels of their own, in
// one call if need be. The file that includes this names the type of the queries: see
// cuda/element.cuh.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/attention/attention/cuda.cuh"
#include "ops/attention/attention/few_rows.cuh"
#include "ops/attention/attention/warpgroups.cuh"

namespace planq::attention {
namespace {

// Keys and values that blocks work on at the same time, for the L2 cache.
constexpr int64_t kNearBytes = int64_t{24} << 20;

// --- Which kernels a call has --------------------------------------------------------------------

// The rows that the kernel of few rows has: those of one token of a sequence, or of some where all
// have few. 0: it has none.
int few_rows_of(const Fields& f) {
  const int64_t group = f.query_shape[1] / f.key_heads;
  const int64_t rows = most_rows(f) <= kMostFewRows ? most_rows(f) : group;
  for (const int own : {4, 8, 16})
    if (rows <= own) return own;
  return 0;
}
constexpr int64_t kMostFewColumns = 256;
bool has_few_columns(const Fields& f) {
  return f.query_shape.last() <= kMostFewColumns && f.value_dim <= kMostFewColumns;
}
bool is_wide_column(int64_t columns) {
  return columns == 64 || columns == 80 || columns == 96 || columns == 128 || columns == 192 ||
         columns == 256;
}
// Whether wide tiles can have what is not of few rows.
template <DType kCache>
bool may_be_wide(const Fields& f) {
  const int64_t columns = f.query_shape.last(), page = f.page_size;
  const bool pages =
      page == 0 || page % kWideBlock == 0 || (page % 8 == 0 && kWideBlock % page == 0);
  return kCache == cuda::kElement && columns == f.value_dim && is_wide_column(columns) && pages &&
         f.query_shape[1] / f.key_heads <= wide_rows(columns);
}
int tile_tokens(const Fields& f) {
  const int64_t group = f.query_shape[1] / f.key_heads;
  return static_cast<int>(wide_rows(f.query_shape.last()) / group);
}
int64_t wide_tiles(const Fields& f) {
  return cuda::ceil_div(std::min(f.max_query, f.query_shape[0]), tile_tokens(f));
}
int64_t wide_count(const Fields& f, bool split) {
  return wide_tiles(f) * f.key_heads * f.batch * (split ? spans_of(f) : 1);
}
template <DType kCache>
bool has_wide(const Fields& f) {
  return may_be_wide<kCache>(f) && most_rows(f) > few_rows_of(f);
}

template <DType kCache>
std::size_t fast_workspace(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const bool split = splits(f);
  const int64_t tiles = has_wide<kCache>(f) ? wide_count(f, split) : 0;
  return Room(f, split ? rows_of(f) : 0, Scratch(), tiles).bytes;
}
// Fewer tokens may split where more do not.
template <DType kCache>
std::size_t largest_fast_workspace(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const int64_t rows = spans_of(f) > 1 ? std::min(rows_of(f), kSplitRows) : 0;
  int64_t tiles = 0;
  if (may_be_wide<kCache>(f)) {
    const int64_t tokens = std::min(f.max_query, rows / f.query_shape[1]);
    const int64_t split_tiles = cuda::ceil_div(tokens, tile_tokens(f)) * spans_of(f);
    tiles = std::max(wide_tiles(f), split_tiles) * f.key_heads * f.batch;
  }
  return Room(f, rows, Scratch(), tiles).bytes;
}

// --- Few rows ------------------------------------------------------------------------------------

// Whether 16 bytes lie together, and places of keys are small numbers.
bool suits_few(const OperandView& cache, const Layout& p, const Side& side) {
  const int size = bits_of(cache.dtype) / 8;
  const auto reach = [](int64_t extent, int64_t stride) { return (extent - 1) * std::abs(stride); };
  const int64_t most =
      reach(p.pages, side.page) + reach(p.page_size, side.place) + reach(p.key_heads, side.head);
  return cuda::has_whole_words(cache, side.columns * size, size, 16) &&
         most / kEight < cuda::kMaxIndex;
}
// What clusters have to do.
int64_t few_work(const Fields& f, const Layout& p, bool split) {
  return p.key_heads * (split ? p.batch * spans_of(f) : p.batch + 1);
}
template <DType kCache>
bool uses_few(const Call& call, const Layout& p) {
  const Fields& f = call.fields<Fields>();
  const Operands& own = call.operands;
  return few_rows_of(f) > 0 && has_few_columns(f) && has_eights(own[kQuery], p.key.columns) &&
         suits_few(own[kKeyCache], p, p.key) && suits_few(own[kValueCache], p, p.value) &&
         std::max({p.max_key, p.page_size, p.pages, p.tokens}) <= cuda::kMaxIndex &&
         few_work(f, p, splits(f)) <= cuda::kMaxIndex / kMostFewBlocks;
}

// Whether the kernel of few rows checks starts itself, if it is the only one.
bool checks_few(const Call& call, const Layout& p) {
  return rows_of(call.fields<Fields>()) > 0 && p.batch < kFewThreads &&
         !call.operands[kInvalid].data;
}

template <int kRows_, int kColumnTiles_>
struct FewShape {
  static constexpr int kRows = kRows_, kColumnTiles = kColumnTiles_;
};
// Calls use(FewShape) for rows, and for columns of the values that a block has.
template <int kRows, DType kCache, class Use>
Status by_few_columns(int64_t columns, const Use& use) {
  if constexpr (!is_code(kCache)) {
    if (columns <= 64) return use(FewShape<kRows, 1>{});
    if (columns <= 128) return use(FewShape<kRows, 2>{});
  }
  return use(FewShape<kRows, 4>{});
}
template <DType kCache, class Use>
Status by_few(int rows, int64_t columns, const Use& use) {
  if (rows == 4) return by_few_columns<4, kCache>(columns, use);
  if (rows == 8) return by_few_columns<8, kCache>(columns, use);
  return by_few_columns<16, kCache>(columns, use);
}
int few_shared_bytes(int rows, int64_t columns, int64_t value_columns, DType cache, bool measured) {
  return FewMemory<Element>(nullptr, rows, static_cast<int>(columns),
                            static_cast<int>(value_columns), bits_of(cache) / 8, measured)
      .bytes;
}
// Columns of the values that each of so many blocks has.
int columns_of_blocks(int64_t columns, int blocks, DType cache) {
  const int tile = is_code(cache) ? 32 : 8;
  return static_cast<int>(cuda::ceil_div(columns, blocks * tile)) * tile;
}
// The blocks of a cluster: as many as the multiprocessors have room for, and columns.
int few_blocks(const Layout& p, int64_t work, DType cache, const Device& device) {
  const auto suits = [&](int blocks) {
    return has_clusters(device.arch) && work * blocks <= device.multiprocessors &&
           columns_of_blocks(p.value.columns, blocks, cache) * (blocks - 1) < p.value.columns;
  };
  int blocks = kMostFewBlocks;
  while (blocks > 1 && !suits(blocks)) blocks /= 2;
  return blocks;
}
// `columns`: that a block has.
FewSide few_side(const Side& side, int64_t columns, DType cache) {
  const auto eights = [](int64_t stride) { return static_cast<int>(stride / kEight); };
  FewSide few;
  few.data = side.data;
  few.page = eights(side.page);
  few.place = eights(side.place);
  few.head = eights(side.head);
  few.columns = static_cast<int>(side.columns);
  const int units = static_cast<int>(columns * bits_of(cache) / 8 / 16);
  few.units = cuda::Divider(static_cast<std::uint32_t>(units));
  few.rows = kMultiplyThreads / units;
  few.more = kMultiplyThreads % units;
  return few;
}
FewArgs few_args(const Fields& f, const TileArgs& args, int blocks) {
  const Layout& p = args.p;
  const auto divider = [](int64_t d) {
    return cuda::Divider(static_cast<std::uint32_t>(std::max<int64_t>(d, 1)));
  };
  FewArgs few(args);
  few.block_shift = std::countr_zero(static_cast<unsigned>(blocks));
  few.block_columns = columns_of_blocks(p.value.columns, blocks, f.cache_dtype);
  few.key = few_side(p.key, p.key.columns, f.cache_dtype);
  few.value = few_side(p.value, few.block_columns, f.cache_dtype);
  few.group = divider(p.group());
  few.of_key_heads = divider(p.key_heads);
  few.of_spans = divider(args.spans);
  few.of_page = divider(p.page_size);
  few.batch = static_cast<int>(p.batch);
  few.most_tokens = static_cast<int>(std::min(p.max_query, cuda::kMaxIndex));
  few.most_keys = static_cast<int>(p.max_key);
  few.pages = static_cast<int>(p.pages);
  few.window = static_cast<int>(std::min(p.window, cuda::kMaxIndex));
  return few;
}
// `found_right`: where the kernel is to say whether starts are right; null: it is told.
template <DType kCache>
Status launch_few(const Call& call, const TileArgs& tile, std::int32_t* found_right, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const int64_t work = few_work(f, tile.p, tile.states != nullptr);
  const int blocks = few_blocks(tile.p, work, kCache, call.device);
  FewArgs args = few_args(f, tile, blocks);
  args.found_right = found_right;
  return by_few<kCache>(few_rows_of(f), args.block_columns, [&](auto shape) {
    using Shape = decltype(shape);
    const cuda::Grid grid = {
        .blocks = work * blocks,
        .threads = dim3(kFewThreads),
        .cluster = blocks,
        .dependent = true,
        .shared_bytes = few_shared_bytes(Shape::kRows, args.key.columns, args.block_columns, kCache,
                                         args.p.measured)};
    return cuda::launch(attend_few<Element, kCache, Shape::kRows, Shape::kColumnTiles>, grid, args,
                        bound);
  });
}

// --- Many rows -----------------------------------------------------------------------------------

template <class Use>
Status by_columns(const Fields& f, const Use& use) {
  const auto by_cap = [&](auto columns) {
    return std::isnan(f.soft_cap) ? use(columns, std::false_type{})
                                  : use(columns, std::true_type{});
  };
  switch (f.query_shape.last()) {
    case 64:
      return by_cap(std::integral_constant<int, 64>{});
    case 80:
      return by_cap(std::integral_constant<int, 80>{});
    case 96:
      return by_cap(std::integral_constant<int, 96>{});
    case 128:
      return by_cap(std::integral_constant<int, 128>{});
    case 192:
      return by_cap(std::integral_constant<int, 192>{});
    default:
      return by_cap(std::integral_constant<int, 256>{});
  }
}
// The shape of what wide tiles leave.
template <int kColumns>
using LeftShape = std::conditional_t<(kColumns > 128), WideRows, ManyRows>;

bool encode_query(const Layout& p, WideArgs& args) {
  const cuda::NumberTensor query{
      p.query,
      {p.key.columns, p.heads, p.tokens, 1},
      {1, p.query_head, p.query_token, 0},
      {cuda::kBoxNumbers, static_cast<int>(p.group()), args.tile_tokens, 1}};
  return cuda::encode_tensor_map(query, args.query_map);
}
bool encode_cache(const Layout& p, const Side& side, int box_keys, cuda::TensorMap& map) {
  const cuda::NumberTensor cache{side.data,
                                 {side.columns, p.page_size, p.key_heads, p.pages},
                                 {1, side.place, side.head, side.page},
                                 {cuda::kBoxNumbers, box_keys, 1, 1}};
  return cuda::encode_tensor_map(cache, map);
}
// The arguments of wide tiles beside those of all; false where TMA cannot read the operands.
bool complete(const Call& call, std::int32_t* left, WideArgs& args) {
  const Fields& f = call.fields<Fields>();
  const Layout& p = args.p;
  args.left = left;
  args.tile_tokens = tile_tokens(f);
  args.tiles = wide_tiles(f);
  args.count = wide_count(f, args.states != nullptr);
  args.box_keys =
      static_cast<int>(f.page_size > 0 ? std::min<int64_t>(f.page_size, kWideBlock) : kWideBlock);
  args.whole_pairs =
      cuda::has_whole_words(call.operands[kOutput], f.value_dim * bits_of(f.output_dtype) / 8,
                            bits_of(f.output_dtype) / 8, bits_of(f.output_dtype) / 4);
  const int64_t own = f.max_key * p.key.columns * 4;
  args.near_pairs = static_cast<std::uint32_t>(
      std::clamp<int64_t>(kNearBytes / std::max<int64_t>(own, 1), 1, p.batch * p.key_heads));
  return args.count <= cuda::kMaxIndex && p.tokens <= cuda::kMaxIndex &&
         std::max(p.max_key, p.page_size) <= cuda::kMaxIndex && encode_query(p, args) &&
         encode_cache(p, p.key, args.box_keys, args.key_map) &&
         encode_cache(p, p.value, args.box_keys, args.value_map);
}
Status launch_wide(const Call& call, const WideArgs& args, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const int64_t blocks = std::min<int64_t>(args.count, call.device.multiprocessors);
  return by_columns(f, [&](auto columns, auto capped) {
    const cuda::Grid grid = {.blocks = blocks,
                             .threads = dim3(kWideThreads),
                             .shared_bytes = WideMemory<columns()>::kBytes};
    PLANQ_TRY(cuda::launch(attend_wide<Element, columns(), capped()>, grid, args, bound));
    using Shape = LeftShape<columns()>;
    const cuda::Grid left = {.blocks = blocks,
                             .threads = dim3(kTileThreads),
                             .shared_bytes = shared_bytes<Shape>(columns(), columns())};
    return cuda::launch(
        attend_left<Element, TensorCoreSteps, Shape::kRowTiles, Shape::kColumnTiles>, left, args,
        bound);
  });
}

// --- The kernel ----------------------------------------------------------------------------------

template <DType kCache>
Status prepare_fast(const Descriptor& descriptor, const Device& device, State& state) {
  const Fields& f = descriptor.as<Fields>();
  PLANQ_TRY((prepare<kCache, TensorCoreSteps>(descriptor, device, state)));
  // Fewer tokens may have more rows of this kernel or fewer, so all of them are loaded; each once,
  // for all columns that there may be.
  const auto load = [&](auto shape) {
    using Shape = decltype(shape);
    constexpr int64_t kValues = is_code(kCache) ? kMostFewColumns : 64 * Shape::kColumnTiles;
    const int most =
        few_shared_bytes(Shape::kRows, kMostFewColumns, kValues, kCache, is_code(kCache));
    const auto room = static_cast<int>(device.shared_memory_per_block);
    return cuda::preload(attend_few<Element, kCache, Shape::kRows, Shape::kColumnTiles>,
                         std::min(most, room));
  };
  if (has_few_columns(f))
    for (const int rows : {4, 8, 16})
      for (int blocks = 1; blocks <= kMostFewBlocks; blocks *= 2)
        PLANQ_TRY(by_few<kCache>(rows, columns_of_blocks(f.value_dim, blocks, kCache), load));
  if constexpr (kCache == cuda::kElement) {
    if (!may_be_wide<kCache>(f)) return Status::success();
    return by_columns(f, [](auto columns, auto capped) {
      PLANQ_TRY(
          cuda::preload(attend_wide<Element, columns(), capped()>, WideMemory<columns()>::kBytes));
      using Shape = LeftShape<columns()>;
      constexpr int64_t kMost = columns() > 128 ? 256 : 128;
      return cuda::preload(
          attend_left<Element, TensorCoreSteps, Shape::kRowTiles, Shape::kColumnTiles>,
          shared_bytes<Shape>(kMost, kMost));
    });
  }
  return Status::success();
}

template <DType kCache>
Status bind_fast(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const bool split = splits(f);
  const int64_t tiles = has_wide<kCache>(f) ? wide_count(f, split) : 0;
  const Room room(f, split ? rows_of(f) : 0, Scratch(call.workspace), tiles);
  const CudaArgs shared = shared_args(call, room, split);
  const bool few = uses_few<kCache>(call, shared.p);
  TileArgs args = tile_args(call, shared);
  args.others = few ? few_rows_of(f) : 0;
  args.fills = !few;
  WideArgs wide{args};
  const bool is_wide = tiles > 0 && complete(call, room.left, wide);
  const bool alone = few && !is_wide && most_rows(f) <= args.others;
  const bool checks = alone && checks_few(call, shared.p);
  if (!checks) {
    PLANQ_TRY(launch_check(call,
                           {.p = shared.p,
                            .starts_are_right = room.starts_are_right,
                            .left = room.left,
                            .left_count = is_wide ? tiles : 0},
                           bound));
    if (rows_of(f) == 0) return Status::success();
  }
  if (is_wide) {
    PLANQ_TRY(launch_wide(call, wide, bound));
  } else if (!alone) {
    PLANQ_TRY((launch_tiles<kCache, TensorCoreSteps>(call, args, bound)));
  }
  if (few)
    PLANQ_TRY(launch_few<kCache>(call, args, checks ? room.starts_are_right : nullptr, bound));
  return split ? launch_finish(call, shared, bound) : Status::success();
}

template <DType kCache>
constexpr Kernel fast_kernel() {
  Kernel kernel = make_kernel<kCache, TensorCoreSteps>("wgmma", {90, 90}, 0);
  kernel.workspace = fast_workspace<kCache>;
  kernel.largest_workspace = largest_fast_workspace<kCache>;
  kernel.prepare = prepare_fast<kCache>;
  kernel.bind = bind_fast<kCache>;
  return kernel;
}

constexpr Kernel kFastKernels[] = {fast_kernel<cuda::kElement>(), fast_kernel<DType::Int8>(),
                                   fast_kernel<DType::Float8E4M3FN>(),
                                   fast_kernel<DType::Float8E5M2>()};

}  // namespace
}  // namespace planq::attention
