// From a run to the kernel of resident.cuh: a tensor with one scale that stays on the chip.
#pragma once

#include <algorithm>

#include "ops/affine/segments/resident.cuh"
#include "ops/affine/segments/split_launch.cuh"

namespace planq::affine {

template <class In, Codes kCodes>
auto resident_kernel(const math::AffineSpec<Compute<In>>& spec) -> void (*)(SplitArgs<In>) {
  return by_mode<kCodes>(spec, [](auto asymmetric) {
    return quantize_resident<In, kCodes, Variant::Specialized, asymmetric.value>;
  });
}

template <class In>
Partial<In>* book_resident(std::int32_t multiprocessors, Scratch& scratch) {
  return scratch.take<Partial<In>>(static_cast<std::size_t>(multiprocessors));
}

// Other specs and layouts take two passes.
template <Codes kCodes, class In>
Status launch_resident(const Launch<In>& launch) {
  const Geometry g = launch.geometry();
  const bool fits = variant_of(launch.spec()) == Variant::Specialized &&
                    is_flat<kCodes>(launch, g) && is_regular(launch.spec());
  if (!fits) return launch_split<kCodes>(launch);
  Scratch scratch(launch.workspace);
  auto args = split_args(launch, g);
  args.partials = book_resident<In>(launch.multiprocessors, scratch);
  const int64_t blocks = std::min<int64_t>(launch.multiprocessors,
                                           ceil_div(g.length / kPerVector<In>, kResidentThreads));
  cuda::Grid grid = launch.grid(blocks, kResidentThreads);
  grid.cooperative = true;
  grid.shared_bytes = kHeldBytes;
  // A stream with a share of the multiprocessors gets the same bits in two passes.
  return cuda::launch_or(
      resident_kernel<In, kCodes>(args.spec), grid, args, launch.bound, [&](Bound& otherwise) {
        return launch_split<kCodes>(Launch<In>{launch.tensor, launch.multiprocessors, launch.arch,
                                               launch.operands, launch.workspace, otherwise});
      });
}

template <class In, Codes kCodes>
Status preload_resident(const math::AffineSpec<Compute<In>>& spec) {
  return cuda::preload(resident_kernel<In, kCodes>(spec), kHeldBytes);
}

}  // namespace planq::affine
