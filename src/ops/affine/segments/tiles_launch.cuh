// From a run to the kernel of tiles.cuh. Tiles of one row or one column are groups.
#pragma once

#include <algorithm>

#include "ops/affine/segments/columns_launch.cuh"
#include "ops/affine/segments/rows_launch.cuh"
#include "ops/affine/segments/tiles.cuh"

namespace planq::affine {

template <class In>
void set_tiles(const Launch<In>& launch, const Geometry& g, TileArgs<In>& args) {
  const Shape parameters = parameter_shape(launch.tensor.shape, launch.tensor.scope);
  const int last = parameters.rank - 1;
  args.tiles = cuda::IndexSpace32(g.starts);
  if (g.lines.rank > 0) {
    args.input_pitch = g.lines.axes[0].stride[kInput];
    args.output_pitch = g.lines.axes[0].stride[kOutput];
  }
  args.across = divider(parameters[last]);
  args.down = divider(parameters[last - 1]);
  args.width = divider(g.length / kPerVector<In>);
  args.last_width = g.tail.pieces > 1 ? divider(g.tail.size / kPerVector<In>) : args.width;
  args.rows = static_cast<std::uint32_t>(g.line_count);
  args.last_rows =
      g.line_tail.pieces > 1 ? static_cast<std::uint32_t>(g.line_tail.size) : args.rows;
}

template <class In, Codes kCodes, bool kAsymmetric>
auto aligned_tile_kernel(int vectors) {
  return vectors == 4 ? quantize_aligned_tiles<In, kCodes, 4, kAsymmetric>
                      : quantize_aligned_tiles<In, kCodes, 8, kAsymmetric>;
}

// Threads that cover whole rows of a tile, so many vectors each, and at least a row.
inline int64_t tile_threads(int64_t rows, int64_t width, int vectors) {
  return ceil_div(ceil_div(rows, vectors) * width, cuda::kWarp) * cuda::kWarp;
}

// What the specialized kernels take: a block's threads cover whole rows of a tile.
template <Codes kCodes, class In>
bool launches_aligned_tiles(const Launch<In>& launch, const Geometry& g, Status& status) {
  if (variant_of(launch.spec()) != Variant::Specialized || !is_regular(launch.spec())) return false;
  const int64_t width = g.length / kPerVector<In>, rows = g.line_count;
  // Few tiles have a multiprocessor each: little work for each thread.
  const bool few = g.count <= launch.multiprocessors;
  const int vectors = (few || tile_threads(rows, width, 8) < 4 * cuda::kWarp) &&
                              tile_threads(rows, width, 4) <= kRowThreads
                          ? 4
                          : 8;
  const int64_t threads = tile_threads(rows, width, vectors);
  if (threads > kRowThreads) return false;
  auto args = launch.template args<AlignedTileArgs<In>>();
  set_tiles(launch, g, args);
  set_steps(args);
  args.step = static_cast<std::uint32_t>(threads / width);
  const auto kernel = by_mode<kCodes>(launch.spec(), [&](auto asymmetric) {
    return aligned_tile_kernel<In, kCodes, asymmetric.value>(vectors);
  });
  status = launch.run(kernel, launch.grid(g.count, static_cast<unsigned>(threads)), args);
  return true;
}

// Whether tiles of one row are read by lanes, not by a block each.
template <class In>
bool fits_subwarp(const SegmentedTensor& tensor) {
  return vectors_of<In>(outline(tensor).elements) <= cuda::kWarp;
}

template <Codes kCodes, class In>
Status launch_tiles(const Launch<In>& launch) {
  const SegmentedTensor& t = launch.tensor;
  if (t.scope.kind == ScopeKind::Group) {
    if (t.scope.axis != t.shape.rank - 1) return launch_column_groups<kCodes>(launch);
    return fits_subwarp<In>(t) ? launch_subwarps<kCodes>(launch) : launch_rows<kCodes>(launch, 1);
  }
  const Geometry g = launch.geometry();
  if (g.count == 0) return Status::success();
  if (!aligned_segments<kCodes>(launch, g) ||
      !aligned<In>(launch.operands, g.lines, kWordBytes<In, kCodes>))
    return launch_lines<kCodes>(launch, g);
  if constexpr (kHasRegular<In, kCodes>) {
    Status status;
    if (launches_aligned_tiles<kCodes>(launch, g, status)) return status;
  }
  // Few tiles have a multiprocessor each: little work for each thread.
  const int64_t vectors = g.line_count * (g.length / kPerVector<In>);
  const int per_thread = g.count <= launch.multiprocessors ? 1 : kTileVectors;
  const int64_t warps = ceil_div(vectors, int64_t{per_thread} * cuda::kWarp);
  const auto threads = static_cast<unsigned>(std::min<int64_t>(warps * cuda::kWarp, kRowThreads));
  auto args = launch.template args<TileArgs<In>>();
  set_tiles(launch, g, args);
  return launch.run(quantize_tiles<In, kCodes>, launch.grid(g.count, threads), args);
}

template <class In, Codes kCodes>
Status preload_tiles(const Quantization<Compute<In>>& tensor) {
  if (tensor.scope.kind == ScopeKind::Block) {
    PLANQ_TRY(preload_all(quantize_tiles<In, kCodes>, quantize_lines<In, kCodes>));
    if constexpr (kHasRegular<In, kCodes>)
      return by_mode<kCodes>(tensor.spec, [](auto asymmetric) {
        return preload_all(aligned_tile_kernel<In, kCodes, asymmetric.value>(4),
                           aligned_tile_kernel<In, kCodes, asymmetric.value>(8));
      });
    return Status::success();
  }
  if (tensor.scope.axis != tensor.shape.rank - 1) return preload_column_groups<In, kCodes>();
  PLANQ_TRY((preload_subwarps<In, kCodes>(tensor.spec)));
  return preload_rows<In, kCodes>(tensor.spec, false);
}

}  // namespace planq::affine
