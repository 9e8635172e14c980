// Gemms in the order of Accumulation::GroupsSm90 with weights that are codes: panels of numbers
// without scales, which the kernels of sm80/groups_tiles.cuh multiply.
#include <algorithm>

#include "ops/linear/simt/launch.h"
#include "ops/linear/sm80/groups_launch.h"
#include "ops/linear/sm80/groups_tiles.cuh"
#include "ops/linear/sm80/operands.h"
#include "ops/linear/weight_only/panels.cuh"

namespace planq::linear {
namespace {

// `panel`: the gemm of some columns, from number `first` on.
GroupArgs group_args(const Gemm& panel, const WeightCodes& codes, std::int64_t first) {
  GroupArgs args;
  static_cast<Sm80Args&>(args) = sm80_args(panel);
  args.codes = codes;
  args.first = first;
  const SegmentScales& scales = codes.scales;
  args.pitch = scales.pitch;
  if (!scales.are_nested() && scales.stored.dtype == DType::Float32)
    args.scales = static_cast<const float*>(scales.stored.absmax);
  args.span = static_cast<std::int32_t>(span_terms(std::max<std::int64_t>(panel.k, 1)));
  const std::int64_t runs = std::max<std::int64_t>(codes.segment_size / math::kMostRunTerms, 1);
  args.segment_runs = cuda::Divider(static_cast<std::uint32_t>(std::min(runs, cuda::kMaxIndex)));
  return args;
}

}  // namespace

Status preload_groups_sm80(DType values) {
  PLANQ_TRY(preload_unscaled(values));
  return values == DType::Float16 ? groups80::preload_f16() : groups80::preload_bf16();
}

Status launch_groups_sm80(const Gemm& gemm, const Call& call, Bound& bound) {
  if (gemm.empty()) return Status::success();
  const WeightCodes& codes = *gemm.weight.codes;
  return panels::each(
      gemm, call, bound, launch_unscaled, [&](const Gemm& panel, std::int64_t first) {
        const GroupArgs args = group_args(panel, codes, first);
        return codes.values == DType::Float16 ? groups80::launch_f16(args, call.device, bound)
                                              : groups80::launch_bf16(args, call.device, bound);
      });
}

}  // namespace planq::linear
