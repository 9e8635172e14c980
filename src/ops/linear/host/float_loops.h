// Blocks of a floating gemm for one instruction set: see host/float.cpp. No include guard, here or
// in the parts: host/instruction_sets.h includes this once for each instruction set, and each part
// puts its loops in that set's namespace, PLANQ_LEVEL.
//
// Operands are widened to float32, which holds every number of theirs exactly: a panel of the
// weights, some columns side by side and a slice of k, and some rows of the input. Sums are added
// up in the order that an Accumulation names.

#include "ops/linear/host/number_loops.h"
#include "ops/linear/host/weight_only_loops.h"

// The others use this.
#include "ops/linear/host/float_widen.h"

#include "ops/linear/host/float_lanes.h"
#include "ops/linear/host/float_output.h"
#include "ops/linear/host/float_tensor_core.h"

// Of the panels and chains in float_tensor_core.h.
#include "ops/linear/host/float_codes.h"
#include "ops/linear/host/float_groups.h"
#include "ops/linear/host/float_slices.h"

namespace planq::host::PLANQ_LEVEL::floating {

// Not inlined: it has fewer sums than the other body, since those of spans lie beside them.
[[gnu::noinline]] inline void compute_groups(const Gemm& p, const Block& b) {
  alignas(64) float sums[kGroupRows * kPanelColumns] = {};
  sums_by_groups(p, b, sums);
  store_block(p, b, sums);
}

// The block has at most block_rows(accumulation) rows.
[[gnu::noinline]] inline void compute_sums(const Gemm& p, Accumulation accumulation,
                                           const Block& b) {
  alignas(64) float sums[kBlockRows * kPanelColumns] = {};
  if (p.continues) load_sums(p, b, sums);
  if (accumulation == Accumulation::Lanes)
    sums_by_lanes(p, b, sums);
  else if (is_fp8(p.input.dtype))
    sums_by_tensor_core<math::TensorCore8>(p, b, sums);
  else
    sums_by_tensor_core<math::TensorCore16>(p, b, sums);
  if (p.continues) return hold_sums(p, b, sums);
  store_block(p, b, sums);
}

inline void compute_block(const Gemm& p, Accumulation accumulation, Block b) {
  accumulation == Accumulation::GroupsSm90 ? compute_groups(p, b)
                                           : compute_sums(p, accumulation, b);
}

}  // namespace planq::host::PLANQ_LEVEL::floating
