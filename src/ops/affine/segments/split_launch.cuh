// From a run to the kernels of split.cuh: segments too long for registers, in two passes.
#pragma once

#include <algorithm>

#include "ops/affine/segments/launch.cuh"
#include "ops/affine/segments/parameters/kernels.h"
#include "ops/affine/segments/split.cuh"

namespace planq::affine {

template <class In>
struct SplitShape {
  std::int32_t parts;
  Partial<In>* partials;
  FlatParameters<Compute<In>>* parameters;
};

inline std::int32_t parts_of(int64_t segments, int64_t blocks, int64_t most) {
  const int64_t wanted = std::max<int64_t>(1, blocks / std::max<int64_t>(segments, 1));
  return static_cast<std::int32_t>(
      std::min({wanted, std::max<int64_t>(1, most), int64_t{kMaxParts}}));
}

template <class In>
SplitShape<In> book_split(const SegmentedTensor& tensor, std::int32_t multiprocessors,
                          Scratch& scratch) {
  const Outline o = outline(tensor);
  const std::int32_t parts = parts_of(o.segments, int64_t{multiprocessors} * kFlatRangeBlocks,
                                      ceil_div(vectors_of<In>(o.elements), kFlatTile));
  SplitShape<In> shape{parts, nullptr, nullptr};
  shape.partials = scratch.take<Partial<In>>(static_cast<std::size_t>(o.segments * parts));
  shape.parameters =
      scratch.take<FlatParameters<Compute<In>>>(static_cast<std::size_t>(o.segments));
  return shape;
}

// What is enough for book_split at any extents up to these. Segments that are cut have together at
// most as many parts as there are blocks.
template <class In>
std::size_t largest_split(const SegmentedTensor& tensor, std::int32_t multiprocessors) {
  const Outline o = outline(tensor);
  const int64_t most =
      std::min<int64_t>(kMaxParts, ceil_div(vectors_of<In>(o.elements), kFlatTile));
  const int64_t cut = std::min(int64_t{multiprocessors} * kFlatRangeBlocks, o.segments * most);
  Scratch scratch;
  scratch.take<Partial<In>>(static_cast<std::size_t>(std::max(o.segments, cut)));
  scratch.take<FlatParameters<Compute<In>>>(static_cast<std::size_t>(o.segments));
  return scratch.bytes();
}

// Whether every segment is one span of whole, aligned vectors, which 32 bits number.
template <Codes kCodes, class In>
bool is_flat(const Launch<In>& launch, const Geometry& g) {
  return g.line_count == 1 && g.length > 0 &&
         g.length / kPerVector<In> <= cuda::kMaxIndex - kFlatTile &&
         g.count * ceil_div(g.length / kPerVector<In>, kFlatTile) <= cuda::kMaxIndex &&
         aligned_segments<kCodes>(launch, g);
}

template <class In, Codes kCodes>
auto flat_code_kernel(const math::AffineSpec<Compute<In>>& spec) -> void (*)(SplitArgs<In>) {
  const bool fast_is_exact = variant_of(spec) == Variant::Specialized;
  return by_mode<kCodes>(spec, [&](auto asymmetric) -> void (*)(SplitArgs<In>) {
    if constexpr (kHasRegular<In, kCodes>)
      if (fast_is_exact) return flat_codes<In, kCodes, Variant::Specialized, asymmetric.value>;
    return flat_codes<In, kCodes, Variant::Generic, asymmetric.value>;
  });
}

template <class In>
SplitArgs<In> split_args(const Launch<In>& launch, const Geometry& g) {
  auto args = launch.template args<SplitArgs<In>>();
  args.segments = g.starts;
  args.lines = g.lines;
  args.line_count = g.line_count;
  args.length = g.length;
  args.groups = g.tail.pieces;
  args.tail = g.tail.size;
  args.clamps = needs_clamp(args.spec);
  return args;
}

template <Codes kCodes, class In>
Status launch_split(const Launch<In>& launch) {
  const Geometry g = launch.geometry();
  Scratch scratch(launch.workspace);
  const auto shape = book_split<In>(launch.tensor, launch.multiprocessors, scratch);
  auto args = split_args(launch, g);
  args.partials = shape.partials;
  args.parts = shape.parts;
  const int64_t blocks = g.count * shape.parts;
  if (!is_flat<kCodes>(launch, g)) {
    PLANQ_TRY(
        launch.run(parameter_kernels<In>().split_ranges, launch.grid(blocks, kSplitThreads), args));
    return launch.run(split_codes<In, kCodes>, launch.grid(blocks, kSplitThreads, true), args);
  }
  args.parameters = shape.parameters;
  args.code_parts = static_cast<std::int32_t>(ceil_div(g.length / kPerVector<In>, kFlatTile));
  args.keep = g.count * g.length * static_cast<int64_t>(sizeof(In)) <= kCachedBytes;
  const ParameterKernels<In> kernels = parameter_kernels<In>();
  PLANQ_TRY(launch.run(kernels.flat_ranges, launch.grid(blocks, kFlatThreads), args));
  PLANQ_TRY(launch.run(kernels.flat_parameters, launch.grid(g.count, kFlatThreads, true), args));
  return launch.run(flat_code_kernel<In, kCodes>(args.spec),
                    launch.grid(g.count * args.code_parts, kFlatThreads, true), args);
}

template <class In, Codes kCodes>
Status preload_split(const math::AffineSpec<Compute<In>>& spec) {
  const ParameterKernels<In> kernels = parameter_kernels<In>();
  return preload_all(kernels.split_ranges, split_codes<In, kCodes>, kernels.flat_ranges,
                     kernels.flat_parameters, flat_code_kernel<In, kCodes>(spec));
}

}  // namespace planq::affine
