// row_column_absmax on CUDA: tiles of absmax.cuh.
#pragma once

#include "ops/outlier/absmax.cuh"
#include "ops/outlier/coo.h"
#include "ops/outlier/row_column_absmax/desc.h"

namespace planq::row_column_absmax {
namespace {

Status prepare(const Descriptor&, const Device&, State&) {
  return outlier::preload_measure<false>();
}

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  outlier::MeasureArgs args{};
  args.input = static_cast<const cuda::Element*>(operands[kInput].data);
  args.row_absmax = static_cast<float*>(operands[kRowAbsmax].data);
  args.column_absmax = static_cast<float*>(operands[kColumnAbsmax].data);
  args.counts = static_cast<std::int32_t*>(operands[kTileCount].data);
  args.rows = outlier::matrix_rows(
      f.shape, {&operands[kInput], &operands[kRowAbsmax], &operands[kTileCount]});
  args.row_count = outlier::rows_of(f.shape);
  args.columns = f.shape.last();
  args.across = outlier::column_tiles(args.columns);
  args.rule = outlier::outlier_rule<cuda::Element>(f.threshold);
  return outlier::launch_measure<false>(args, call.device, bound);
}

constexpr Kernel kKernels[] = {{.op = "row_column_absmax",
                                .body = "tiles",
                                .dtypes = kDTypes<cuda::kElement, DType::Float32>,
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {80},
                                .rank = 0,
                                .guarantee = kGuarantee,
                                .rejects = rejects<cuda::kElement>,
                                .workspace = no_workspace,
                                .prepare = prepare,
                                .bind = bind}};

}  // namespace
}  // namespace planq::row_column_absmax
