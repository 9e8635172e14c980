// Products with weights that are codes, on the tensor cores of sm_90. For a few rows they become
// numbers in registers (slices.cuh); for many, panels of them do in the workspace, which the
// kernel for numbers multiplies. A panel stays in the L2 cache between the two.
#include <algorithm>

#include "core/scratch.h"
#include "cuda/launch.cuh"
#include "ops/linear/float_launch.cuh"
#include "ops/linear/slices.cuh"

namespace planq::linear {
namespace {

// Half of the L2 cache of sm_90, which the outputs and the input pass through as well.
constexpr std::int64_t kPanelBytes = 24 << 20;
// Of a tile, so that no tile is cut.
constexpr std::int64_t kPanelRows = 128;

std::int64_t panel_rows(std::int64_t columns, std::int64_t terms) {
  const std::int64_t row_bytes = std::max<std::int64_t>(terms, 1) * 2;
  const std::int64_t fit = std::max(kPanelBytes / row_bytes / kPanelRows, std::int64_t{1});
  return std::min(fit * kPanelRows, columns);
}

std::byte* book(std::int64_t columns, std::int64_t terms, Scratch& scratch) {
  const auto row_bytes = static_cast<std::size_t>(terms) * 2;
  return scratch.take<std::byte>(static_cast<std::size_t>(panel_rows(columns, terms)) * row_bytes);
}

}  // namespace

Status preload_coded_wgmma(DType values) {
  PLANQ_TRY(slices::preload<slices::CodedWeights>(values));
  PLANQ_TRY(preload_numbers(values));
  return preload_float_wgmma(values, values);
}

std::size_t coded_wgmma_workspace(std::int64_t columns, std::int64_t terms) {
  Scratch scratch;
  book(columns, terms, scratch);
  return scratch.bytes();
}

Status launch_coded_wgmma(const Product& product, const Call& call, Bound& bound) {
  if (product.empty()) return Status::success();
  if (slices::takes(product)) return slices::launch<slices::CodedWeights>(product, bound);
  const WeightCodes& codes = *product.weight.codes;
  Scratch scratch(call.workspace);
  std::byte* const numbers = book(product.n, product.k, scratch);
  const std::int64_t rows = panel_rows(product.n, product.k);
  for (std::int64_t first = 0; first < product.n; first += rows) {
    Product panel = columns_of(product, first, std::min(rows, product.n - first));
    panel.weight = {reinterpret_cast<const std::uint8_t*>(numbers), panel.n == 1 ? 0 : product.k, 1,
                    codes.values};
    if (product.k > 0) PLANQ_TRY(launch_numbers(codes, first, panel.n, numbers, product.k, bound));
    PLANQ_TRY(launch_float_wgmma(panel, call.device, bound));
  }
  return Status::success();
}

}  // namespace planq::linear
