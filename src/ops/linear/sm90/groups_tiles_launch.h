// What sm90/groups_tiles_sm90a.cu calls of the files that have the kernels of
// sm90/groups_tiles.cuh, one for each type of numbers and each kind of codes.
#pragma once

#include <cstdint>

#include "core/bound.h"
#include "core/status.h"
#include "ops/linear/weight_only/codes.h"

namespace planq::linear::sm90::groups::tiles {

struct Args;

// `width`: an index of kTileWidths, for which has_width() holds. `blocks`: the most that are of
// use. `dependent`: the launch follows another.
struct Launch {
  const Args* args;
  int width;
  std::int64_t blocks;
  bool dependent;
};

Status preload_nibbles_f16(const CodeKind& kind);
Status preload_nibbles_bf16(const CodeKind& kind);
Status preload_high_nibbles_f16(const CodeKind& kind);
Status preload_high_nibbles_bf16(const CodeKind& kind);
Status preload_table_f16(const CodeKind& kind);
Status preload_table_bf16(const CodeKind& kind);
Status preload_bytes_f16(const CodeKind& kind);
Status preload_bytes_bf16(const CodeKind& kind);
Status launch_nibbles_f16(const CodeKind& kind, const Launch& launch, Bound& bound);
Status launch_nibbles_bf16(const CodeKind& kind, const Launch& launch, Bound& bound);
Status launch_high_nibbles_f16(const CodeKind& kind, const Launch& launch, Bound& bound);
Status launch_high_nibbles_bf16(const CodeKind& kind, const Launch& launch, Bound& bound);
Status launch_table_f16(const CodeKind& kind, const Launch& launch, Bound& bound);
Status launch_table_bf16(const CodeKind& kind, const Launch& launch, Bound& bound);
Status launch_bytes_f16(const CodeKind& kind, const Launch& launch, Bound& bound);
Status launch_bytes_bf16(const CodeKind& kind, const Launch& launch, Bound& bound);

}  // namespace planq::linear::sm90::groups::tiles
