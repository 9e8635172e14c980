// From a run to the kernel of tiles.cuh. Tiles of one row or one column are groups.
#pragma once

#include <algorithm>

#include "ops/affine/columns_launch.cuh"
#include "ops/affine/rows_launch.cuh"
#include "ops/affine/tiles.cuh"

namespace planq::affine {

template <class In>
TileArgs<In> tile_args(const Launch<In>& launch, const Geometry& g) {
  const Shape parameters = parameter_shape(launch.tensor.shape, launch.tensor.scope);
  const int last = parameters.rank - 1;
  auto args = launch.template args<TileArgs<In>>();
  args.tiles = cuda::Lines(g.starts);
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
  return args;
}

// Whether tiles of one row are read by lanes, not by a block each.
template <class In>
bool fits_lanes(const SegmentedTensor& tensor) {
  return vectors_of<In>(outline(tensor).elements) <= cuda::kWarp;
}

template <Codes kCodes, class In>
Status launch_tiles(const Launch<In>& launch) {
  const SegmentedTensor& t = launch.tensor;
  if (t.scope.kind == ScopeKind::Group) {
    if (t.scope.axis != t.shape.rank - 1) return launch_column_groups<kCodes>(launch);
    return fits_lanes<In>(t) ? launch_lanes<kCodes>(launch) : launch_rows<kCodes>(launch, 1);
  }
  const Geometry g = launch.geometry();
  if (g.count == 0) return Status::success();
  if (!aligned_segments<kCodes>(launch, g) ||
      !aligned<In>(launch.operands, g.lines, kWordBytes<In, kCodes>))
    return launch_lines<kCodes>(launch, g);
  // Few tiles have a multiprocessor each: little work for each thread.
  const int64_t vectors = g.line_count * (g.length / kPerVector<In>);
  const int per_thread = g.count <= launch.multiprocessors ? 1 : kTileVectors;
  const int64_t warps = ceil_div(vectors, int64_t{per_thread} * cuda::kWarp);
  const auto threads = static_cast<unsigned>(std::min<int64_t>(warps * cuda::kWarp, kRowThreads));
  return launch.run(quantize_tiles<In, kCodes>, launch.grid(g.count, threads),
                    tile_args(launch, g));
}

template <class In, Codes kCodes>
Status preload_tiles(const Quantization<Compute<In>>& tensor) {
  if (tensor.scope.kind == ScopeKind::Block)
    return preload_all(quantize_tiles<In, kCodes>, quantize_lines<In, kCodes>);
  if (tensor.scope.axis != tensor.shape.rank - 1) return preload_column_groups<In, kCodes>();
  PLANQ_TRY((preload_lanes<In, kCodes>(tensor.recipe)));
  return preload_rows<In, kCodes>(tensor.recipe, false);
}

}  // namespace planq::affine
