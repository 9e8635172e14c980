// The kernels of sm90/groups_tiles.cuh for one type of numbers, and their launch. Each type and
// kind of codes has a file of its own, since they take long to compile.
#pragma once

#include "ops/linear/sm90/groups_tiles.cuh"
#include "ops/linear/sm90/groups_tiles_launch.h"

namespace planq::linear::sm90::groups::tiles {

// Calls visit<shape>() for the kernel of a width, where there is one.
template <class T, RegisterCodes kCodes, bool kHighFirst, int kRun, int kWidth, class Visit>
Status visit_shape(const Visit& visit) {
  constexpr TileWidth kOwn = kTileWidths[kWidth];
  if constexpr (has_width(kOwn, kRun))
    return visit.template
    operator()<Shape<T, kCodes, kHighFirst, kOwn.tokens, kOwn.owners, kOwn.sharing, kRun>>();
  return Status::success();
}
template <class T, RegisterCodes kCodes, bool kHighFirst, int kRun, class Visit>
Status visit_widths(int width, const Visit& visit) {
  static_assert(kTileWidths.size() == 5);
  switch (width) {
    case 0:
      return visit_shape<T, kCodes, kHighFirst, kRun, 0>(visit);
    case 1:
      return visit_shape<T, kCodes, kHighFirst, kRun, 1>(visit);
    case 2:
      return visit_shape<T, kCodes, kHighFirst, kRun, 2>(visit);
    case 3:
      return visit_shape<T, kCodes, kHighFirst, kRun, 3>(visit);
    default:
      return visit_shape<T, kCodes, kHighFirst, kRun, 4>(visit);
  }
}
// The kernels of a kind of codes, of those that has_kernels() of groups_codes.h knows.
template <class T, RegisterCodes kCodes, bool kHighFirst, class Visit>
Status visit_runs(int run, int width, const Visit& visit) {
  if constexpr (kCodes == RegisterCodes::Table)
    if (run == 16) return visit_widths<T, kCodes, kHighFirst, 16>(width, visit);
  if constexpr (kCodes != RegisterCodes::Bytes)
    if (run == 32) return visit_widths<T, kCodes, kHighFirst, 32>(width, visit);
  if constexpr (!has_bytes(kCodes))
    if (run == 64) return visit_widths<T, kCodes, kHighFirst, 64>(width, visit);
  return visit_widths<T, kCodes, kHighFirst, kSlice>(width, visit);
}

template <class T, RegisterCodes kCodes, bool kHighFirst = false>
Status preload_codes(const CodeKind& kind) {
  for (int width = 0; width < static_cast<int>(kTileWidths.size()); ++width)
    PLANQ_TRY((visit_runs<T, kCodes, kHighFirst>(kind.run, width, [&]<class S>() {
      return cuda::preload(multiply_tiles<S>, S::kSharedBytes);
    })));
  return Status::success();
}
template <class T, RegisterCodes kCodes, bool kHighFirst = false>
Status launch_codes(const CodeKind& kind, const Launch& launch, Bound& bound) {
  return visit_runs<T, kCodes, kHighFirst>(kind.run, launch.width, [&]<class S>() {
    const cuda::Grid grid{.blocks = launch.blocks,
                          .threads = dim3(S::kThreads),
                          .dependent = launch.dependent,
                          .shared_bytes = S::kSharedBytes};
    return cuda::launch(multiply_tiles<S>, grid, *launch.args, bound);
  });
}

}  // namespace planq::linear::sm90::groups::tiles
