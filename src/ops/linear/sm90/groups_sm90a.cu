// Gemms in the order of Accumulation::GroupsSm90 on sm_90a: which kernel takes a gemm.
#include "cuda/launch.cuh"
#include "ops/linear/simt/launch.h"
#include "ops/linear/sm90/groups_launch.h"
#include "ops/linear/sm90/heuristics.h"

namespace planq::linear {
namespace {

using sm90::Body;

bool may(Body asked, Body body) { return asked == Body::Fastest || asked == body; }

// Whether codes are looked up in a table, those of a codebook as well as e2m1.
bool has_table(const WeightCodes& codes) {
  return codes.has_codebook() || codes.dtype == DType::Float4E2M1FN;
}

// Whether the kernel for few rows takes a gemm.
bool takes_few_rows(const Gemm& gemm, Body asked, const sm90::Problem& problem, int run) {
  if (!may(asked, Body::MmaFewRows) || !sm90::groups::few_rows::takes(gemm)) return false;
  const bool tiles = may(asked, Body::Tiles) && sm90::groups::tiles::takes(gemm);
  return !(tiles && has_table(*gemm.weight.codes) && sm90::groups::prefers_tiles(problem, run));
}

// The body that takes a gemm of many rows. Fastest: none of sm_90a does.
Body choose(const Gemm& gemm, Body asked, const sm90::Problem& problem, int run) {
  const bool tiles = may(asked, Body::Tiles) && sm90::groups::tiles::takes(gemm);
  const bool panels = may(asked, Body::Panels) && sm90::groups::panels::takes(gemm);
  if (tiles && panels)
    return sm90::groups::prefers_panels(problem, run) ? Body::Panels : Body::Tiles;
  return tiles ? Body::Tiles : panels ? Body::Panels : Body::Fastest;
}

}  // namespace

std::size_t groups_workspace_sm90(std::int64_t columns, std::int64_t terms, const CodeKind& kind,
                                  const Device& device) {
  return sm90::groups::panels::workspace(columns, terms, kind.run, device);
}

Status preload_groups_sm90(const CodeKind& kind) {
  PLANQ_TRY(sm90::groups::few_rows::preload(kind));
  PLANQ_TRY(sm90::groups::tiles::preload(kind));
  PLANQ_TRY(sm90::groups::panels::preload(kind));
  return preload_groups_sm80(kind.values);
}

Status launch_groups_sm90(const Gemm& gemm, Body body, const Call& call, Bound& bound) {
  if (gemm.empty()) return Status::success();
  const sm90::Problem problem{gemm.m, gemm.n, gemm.k, gemm.batch.size(),
                              call.device.multiprocessors};
  const int run = run_terms(*gemm.weight.codes);
  bool launched = false;
  if (takes_few_rows(gemm, body, problem, run)) {
    bound.name_body(name_of(Body::MmaFewRows));
    PLANQ_TRY(sm90::groups::few_rows::launch(gemm, call.device, bound, launched));
    if (launched) return Status::success();
  }
  const Body chosen = choose(gemm, body, problem, run);
  bound.name_body(name_of(chosen));
  if (chosen == Body::Panels) return sm90::groups::panels::launch(gemm, call, bound);
  if (chosen == Body::Tiles)
    PLANQ_TRY(sm90::groups::tiles::launch(gemm, sm90::groups::choose_width(problem, run),
                                          call.device, bound, launched));
  if (launched) return Status::success();
  bound.name_body("mma");
  return launch_groups_sm80(gemm, call, bound);
}

}  // namespace planq::linear
