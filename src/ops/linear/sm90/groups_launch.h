// Launches of the kernels of Accumulation::GroupsSm90 on sm_90a.
#pragma once

#include "core/bound.h"
#include "core/device.h"
#include "ops/linear/experts.h"
#include "ops/linear/gemm.h"
#include "ops/linear/sm90/bodies.h"
#include "ops/linear/weight_only/codes.h"

namespace planq::linear::sm90::groups {

// For up to 16 rows of input (sm90/groups_few_rows.cuh). Sets `launched` to false, and launches
// nothing, if the input has no room in shared memory.
namespace few_rows {
inline constexpr int kMostRows = 16;

Status preload(const CodeKind& kind);
bool takes(const Gemm& gemm);
Status launch(const Gemm& gemm, const Device& device, Bound& bound, bool& launched);
}  // namespace few_rows

// For any number of rows (sm90/groups_tiles.cuh). `width`: an index of kTileWidths
// (sm90/heuristics.h). Sets `launched` to false, and launches nothing, if TMA cannot read an
// operand.
namespace tiles {
Status preload(const CodeKind& kind);
bool takes(const Gemm& gemm);
Status launch(const Gemm& gemm, int width, const Device& device, Bound& bound, bool& launched);

// The same of several experts, whose tiles are listed in the workspace first. Rows of nobody become
// 0.
std::size_t experts_workspace(std::int64_t rows, std::int64_t experts);
Status preload_experts(const CodeKind& kind);
Status launch_experts(const Experts& experts, const Call& call, Bound& bound, bool& launched);
}  // namespace tiles

// For any codes, by panels in the workspace (sm90/groups_panels.cuh).
namespace panels {
std::size_t workspace(std::int64_t columns, std::int64_t terms, int run, const Device& device);
Status preload(const CodeKind& kind);
bool takes(const Gemm& gemm);
Status launch(const Gemm& gemm, const Call& call, Bound& bound);
}  // namespace panels

}  // namespace planq::linear::sm90::groups

namespace planq::linear {

// Chooses between these and the kernels of other engines, which take any operands.
std::size_t groups_workspace_sm90(std::int64_t columns, std::int64_t terms, const CodeKind& kind,
                                  const Device& device);
Status preload_groups_sm90(const CodeKind& kind);
Status launch_groups_sm90(const Gemm& gemm, sm90::Body body, const Call& call, Bound& bound);

}  // namespace planq::linear
