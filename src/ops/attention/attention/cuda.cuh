// attention on CUDA: a block checks what the device says of sequences, others have tiles of rows.
// The spans of few rows have blocks of their own, so that one sequence alone keeps all
// multiprocessors busy; another kernel merges them. The file that includes this names the type of
// the queries: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/scratch.h"
#include "core/sku.h"
#include "cuda/divider.cuh"
#include "cuda/element.cuh"
#include "cuda/neighbours.cuh"
#include "ops/attention/attention/tiles.cuh"

namespace planq::attention {
namespace {

using cuda::Element;

// Rows whose spans have blocks of their own: at most so many.
constexpr int64_t kSplitRows = 4096;

int64_t rows_of(const Fields& f) { return f.query_shape[0] * f.query_shape[1]; }
int64_t spans_of(const Fields& f) { return cuda::ceil_div(f.max_key, math::kSpanKeys); }
bool splits(const Fields& f) { return spans_of(f) > 1 && rows_of(f) <= kSplitRows; }

struct Room {
  std::int32_t* starts_are_right;
  float* states;
  std::int32_t* left;  // of tiles: see warpgroups.cuh
  std::size_t bytes;

  // `rows`: with states of their spans.
  Room(const Fields& f, int64_t rows, Scratch scratch, int64_t tiles = 0) {
    starts_are_right = scratch.take<std::int32_t>(1);
    states = scratch.take<float>(static_cast<std::size_t>(rows * spans_of(f) * (2 + f.value_dim)));
    left = scratch.take<std::int32_t>(static_cast<std::size_t>(tiles));
    bytes = scratch.bytes();
  }
};
std::size_t workspace(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  return Room(f, splits(f) ? rows_of(f) : 0, Scratch()).bytes;
}
// Fewer tokens may split where more do not.
std::size_t largest_workspace(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  return Room(f, spans_of(f) > 1 ? std::min(rows_of(f), kSplitRows) : 0, Scratch()).bytes;
}

// --- Launches ------------------------------------------------------------------------------------

// A tile has 16 rows, or 64 where a sequence may have more and values are no wider than 128
// columns.
template <int kRowTiles_, int kColumnTiles_>
struct Shape16 {
  static constexpr int kRowTiles = kRowTiles_, kColumnTiles = kColumnTiles_;
  static constexpr int kRows = 16 * kRowTiles;
};
using FewRows = Shape16<1, 4>;
using ManyRows = Shape16<4, 4>;
using WideRows = Shape16<1, 16>;

// The model takes so long that shapes make no difference.
template <class Steps, class Use>
Status by_shape(const Fields& f, const Use& use) {
  constexpr int64_t kNarrow = int64_t{kTileWarps} * FewRows::kColumnTiles * 8;
  const int64_t group = f.query_shape[1] / f.key_heads;
  if (f.value_dim > kNarrow) return use(WideRows{});
  if constexpr (std::is_same_v<Steps, TensorCoreSteps>)
    if (std::min(f.max_query, f.query_shape[0]) * group > FewRows::kRows) return use(ManyRows{});
  return use(FewRows{});
}

template <class Shape>
int shared_bytes(int64_t columns, int64_t value_columns) {
  return TileMemory<Element, Shape::kRows>(nullptr, columns, value_columns).bytes;
}

template <DType kCache, class Steps>
Reason rejects_on(const Descriptor& descriptor, const Device& device) {
  const Reason reason = rejects<cuda::kElement, kCache>(descriptor, device);
  if (!reason.accepted()) return reason;
  const Fields& f = descriptor.as<Fields>();
  std::int64_t needed = 0;
  (void)by_shape<Steps>(f, [&](auto shape) {
    needed = shared_bytes<decltype(shape)>(f.query_shape.last(), f.value_dim);
    return Status::success();
  });
  const auto room = static_cast<int64_t>(device.shared_memory_per_block);
  if (needed <= room) return Reason::accept();
  return Reason::refuse(ReasonKind::Device, "needs ", needed,
                        " bytes of shared memory for a block, the device has ", room);
}

bool has_eights(const OperandView& view, int64_t columns) {
  const int size = bits_of(view.dtype) / 8;
  return cuda::has_whole_words(view, columns * size, size, 8 * size);
}

// The most rows of a sequence and a key head.
int64_t most_rows(const Fields& f) {
  return std::min(f.max_query, f.query_shape[0]) * f.query_shape[1] / f.key_heads;
}

template <DType kCache, class Steps, class Shape>
Status launch_tiles(const Call& call, TileArgs args, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Layout& p = args.p;
  args.tiles = std::max<int64_t>(cuda::ceil_div(most_rows(f), Shape::kRows), 1);
  args.count = args.tiles * p.key_heads *
               (args.states ? p.batch * args.spans : p.batch + (args.fills ? 1 : 0));
  const cuda::Grid grid = {.blocks = std::min(args.count, cuda::kMaxIndex),
                           .threads = dim3(kTileThreads),
                           .shared_bytes = shared_bytes<Shape>(f.query_shape.last(), f.value_dim)};
  return cuda::launch(attend_tiles<Element, kCache, Steps, Shape::kRowTiles, Shape::kColumnTiles>,
                      grid, args, bound);
}

template <DType kCache, class Steps>
Status prepare(const Descriptor& descriptor, const Device& device, State&) {
  const Fields& f = descriptor.as<Fields>();
  PLANQ_TRY(cuda::preload(check_sequences));
  PLANQ_TRY(cuda::preload(finish_rows));
  // Fewer tokens may have another shape. A kernel is loaded once, for all columns that there may
  // be.
  const auto load = [&](auto shape) {
    using Shape = decltype(shape);
    constexpr int64_t kMostValues = int64_t{kTileWarps} * Shape::kColumnTiles * 8;
    const int most = shared_bytes<Shape>(kMostKeyColumns, kMostValues);
    const auto room = static_cast<int>(device.shared_memory_per_block);
    return cuda::preload(
        attend_tiles<Element, kCache, Steps, Shape::kRowTiles, Shape::kColumnTiles>,
        std::min(most, room));
  };
  PLANQ_TRY(by_shape<Steps>(f, load));
  return load(FewRows{});
}

// What the kernels of a call share.
CudaArgs shared_args(const Call& call, const Room& room, bool split) {
  const Fields& f = call.fields<Fields>();
  return {Layout(call), f.output_dtype, room.starts_are_right, split ? room.states : nullptr,
          split ? spans_of(f) : 1};
}
TileArgs tile_args(const Call& call, const CudaArgs& shared) {
  const Fields& f = call.fields<Fields>();
  const Operands& own = call.operands;
  TileArgs args{shared};
  args.whole_query = has_eights(own[kQuery], f.query_shape.last());
  args.whole_key = has_eights(own[kKeyCache], f.query_shape.last());
  args.whole_value = has_eights(own[kValueCache], f.value_dim);
  return args;
}
Status launch_check(const Call& call, const CheckArgs& args, Bound& bound) {
  const cuda::Grid one = {.blocks = 1,
                          .threads = dim3(kCheckThreads),
                          .dependent = has_dependent_launches(call.device.arch)};
  CheckArgs own = args;
  own.invalid = static_cast<int64_t*>(call.operands[kInvalid].data);
  return cuda::launch(check_sequences, one, own, bound);
}
Status launch_finish(const Call& call, const CudaArgs& shared, Bound& bound) {
  const cuda::Grid grid = {.blocks = rows_of(call.fields<Fields>()),
                           .threads = dim3(kRowThreads),
                           .dependent = has_dependent_launches(call.device.arch)};
  return cuda::launch(finish_rows, grid, shared, bound);
}
template <DType kCache, class Steps>
Status launch_tiles(const Call& call, const TileArgs& args, Bound& bound) {
  return by_shape<Steps>(call.fields<Fields>(), [&](auto shape) {
    return launch_tiles<kCache, Steps, decltype(shape)>(call, args, bound);
  });
}

template <DType kCache, class Steps>
Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const bool split = splits(f);
  const Room room(f, split ? rows_of(f) : 0, Scratch(call.workspace));
  const CudaArgs shared = shared_args(call, room, split);
  PLANQ_TRY(launch_check(call, {.p = shared.p, .starts_are_right = room.starts_are_right}, bound));
  if (rows_of(f) == 0) return Status::success();
  PLANQ_TRY((launch_tiles<kCache, Steps>(call, tile_args(call, shared), bound)));
  return split ? launch_finish(call, shared, bound) : Status::success();
}

template <DType kCache, class Steps>
constexpr Kernel make_kernel(std::string_view body, ArchRange arch, std::int16_t rank) {
  return {.op = "attention",
          .arithmetic = name_of(Accumulation::TensorSm90),
          .body = body,
          .dtypes = kDTypes<cuda::kElement, kCache>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = arch,
          .rank = rank,
          .guarantee = kGuarantee<cuda::kElement>,
          .rejects = rejects_on<kCache, Steps>,
          .workspace = workspace,
          .prepare = prepare<kCache, Steps>,
          .bind = bind<kCache, Steps>,
          .largest_workspace = largest_workspace};
}

// On sm_90 its tensor cores make the steps, behind those of cuda_sm90a.cuh; other GPUs compute
// the model of these.
template <DType kCache>
constexpr Kernel kTiles = make_kernel<kCache, TensorCoreSteps>("tiles", {90, 90}, 1);
template <DType kCache>
constexpr Kernel kModel = make_kernel<kCache, ModelSteps>("model", {80, kLastArch}, 2);

[[maybe_unused]] constexpr Kernel kKernels[] = {
    kTiles<cuda::kElement>,      kTiles<DType::Int8>,      kTiles<DType::Float8E4M3FN>,
    kTiles<DType::Float8E5M2>,   kModel<cuda::kElement>,   kModel<DType::Int8>,
    kModel<DType::Float8E4M3FN>, kModel<DType::Float8E5M2>};

}  // namespace
}  // namespace planq::attention
