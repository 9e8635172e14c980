// Products with weights that are codes, on the tensor cores of sm_90. For up to some hundred rows
// they become numbers in registers (coded_slices.cuh, wgmma_decoding.cuh); for more, panels of them
// do in the workspace, which the kernels for numbers multiply. See wgmma_decoding_choice.h.
#include <algorithm>

#include "core/scratch.h"
#include "cuda/launch.cuh"
#include "ops/linear/coded_slices.cuh"
#include "ops/linear/float_launch.cuh"
#include "ops/linear/wgmma_decoding_choice.h"
#include "ops/linear/wgmma_decoding_launch.cuh"

namespace planq::linear {
namespace {

// Columns that a multiprocessor has of a panel: what a block of the kernel for few rows computes.
// A panel of fewer leaves multiprocessors idle, which costs more than one that leaves the L2 cache.
constexpr std::int64_t kPanelColumns = 64;
// Of a tile, so that no tile is cut.
constexpr std::int64_t kTileColumns = 128;

// Columns of a panel, all of them about equally many.
std::int64_t panel_columns(std::int64_t columns, const Device& device) {
  const std::int64_t most = std::max(kPanelColumns * device.multiprocessors, kTileColumns);
  const std::int64_t panels = cuda::ceil_div(columns, most);
  if (panels <= 1) return columns;
  return cuda::ceil_div(cuda::ceil_div(columns, panels), kTileColumns) * kTileColumns;
}

std::byte* book(std::int64_t columns, std::int64_t terms, const Device& device, Scratch& scratch) {
  const auto row_bytes = static_cast<std::size_t>(terms) * 2;
  return scratch.take<std::byte>(static_cast<std::size_t>(panel_columns(columns, device)) *
                                 row_bytes);
}

Status launch_panels(const Product& product, const Call& call, Bound& bound) {
  const WeightCodes& codes = *product.weight.codes;
  Scratch scratch(call.workspace);
  std::byte* const numbers = book(product.n, product.k, call.device, scratch);
  const std::int64_t rows = panel_columns(product.n, call.device);
  for (std::int64_t first = 0; first < product.n; first += rows) {
    Product panel = columns_of(product, first, std::min(rows, product.n - first));
    panel.weight = {reinterpret_cast<const std::uint8_t*>(numbers), panel.n == 1 ? 0 : product.k, 1,
                    codes.values};
    if (product.k > 0) PLANQ_TRY(launch_numbers(codes, first, panel.n, numbers, product.k, bound));
    PLANQ_TRY(launch_float_wgmma(panel, call.device, bound));
  }
  return Status::success();
}

}  // namespace

Status preload_coded_wgmma(DType values) {
  PLANQ_TRY(coded::preload(values));
  PLANQ_TRY(decoding::preload(values));
  PLANQ_TRY(preload_numbers(values));
  return preload_float_wgmma(values, values);
}

std::size_t coded_wgmma_workspace(std::int64_t columns, std::int64_t terms, const Device& device) {
  Scratch scratch;
  book(columns, terms, device, scratch);
  return scratch.bytes();
}

Status launch_coded_wgmma(const Product& product, const Call& call, Bound& bound) {
  if (product.empty()) return Status::success();
  const decoding::Choice choice = decoding::choose(
      {product.m, product.n, product.k, product.batch.size(), call.device.multiprocessors},
      coded::takes(product), decoding::takes(product),
      product.weight.codes->statistics.nested_block_size != 0);
  if (choice.way == decoding::Way::FewRows) return coded::launch(product, call.device, bound);
  bool launched = false;
  if (choice.way == decoding::Way::Decoding)
    PLANQ_TRY(decoding::launch(product, choice.width, call.device, bound, launched));
  return launched ? Status::success() : launch_panels(product, call, bound);
}

}  // namespace planq::linear
