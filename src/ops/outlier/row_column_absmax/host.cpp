// row_column_absmax on the host: tiles of absmax_host.h.

#include <cstdint>

#include "host/bind.h"
#include "math/formats.h"
#include "ops/outlier/absmax_host.h"
#include "ops/outlier/coo.h"
#include "ops/outlier/row_column_absmax/desc.h"

namespace planq::row_column_absmax {
namespace {

using std::int64_t;

template <DType kElement>
Status compute(const Call& call, const Stream& stream) {
  using T = math::Stored<kElement>;
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const OperandView &input = operands[kInput], &row_absmax = operands[kRowAbsmax],
                    &tile_count = operands[kTileCount];
  const outlier::TiledMatrix matrix = {
      outlier::matrix_rows(f.shape, {&input, &row_absmax, &tile_count}), outlier::rows_of(f.shape),
      f.shape.last()};
  auto* const counts = static_cast<std::int32_t*>(tile_count.data);
  outlier::measure(stream.threads, matrix, outlier::outlier_rule<T>(f.threshold), input.data,
                   row_absmax.data, operands[kColumnAbsmax].data,
                   [&](int64_t, const Offsets& at, int64_t across, std::int32_t outliers) {
                     counts[at.at[outlier::kMatrixOther] + across] = outliers;
                   });
  return Status::success();
}

template <DType kElement>
constexpr Kernel make_kernel() {
  return {.op = "row_column_absmax",
          .body = "tiles",
          .dtypes = kDTypes<kElement, DType::Float32>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kElement>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kElement>>};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>()};

}  // namespace

}  // namespace planq::row_column_absmax

PLANQ_KERNELS(row_column_absmax, host, kKernels);
