// Gemms with weights that are codes, by kernels that read numbers alone. Some rows of the weight at
// a time, a panel, are dequantized to the workspace and multiplied. A column of the output is a row
// of the weight.
#pragma once

#include <algorithm>

#include "core/scratch.h"
#include "cuda/launch.cuh"
#include "ops/linear/simt/launch.h"
#include "ops/linear/weight_only/codes.h"

namespace planq::linear {
namespace panels {

// Columns of a panel for each multiprocessor: those of a block of the kernels for few rows. Smaller
// panels would leave multiprocessors idle. That costs more than panels which do not fit in the L2
// cache.
inline constexpr std::int64_t kPanelColumns = 64;
// Panels are whole tiles.
inline constexpr std::int64_t kTileColumns = 128;

// The columns of a panel. All panels have about as many.
inline std::int64_t panel_columns(std::int64_t columns, const Device& device) {
  const std::int64_t most = std::max(kPanelColumns * device.multiprocessors, kTileColumns);
  const std::int64_t count = cuda::ceil_div(columns, most);
  if (count <= 1) return columns;
  return cuda::ceil_div(cuda::ceil_div(columns, count), kTileColumns) * kTileColumns;
}

// Numbers from a row of a panel to the next: rows are whole vectors.
inline std::int64_t panel_stride(std::int64_t terms) { return cuda::ceil_div(terms, 8) * 8; }

inline std::byte* book(std::int64_t columns, std::int64_t terms, const Device& device,
                       Scratch& scratch) {
  const auto row_bytes = static_cast<std::size_t>(panel_stride(terms)) * 2;
  return scratch.take<std::byte>(static_cast<std::size_t>(panel_columns(columns, device)) *
                                 row_bytes);
}

// Calls write(codes, first, rows, to, stride, bound), which writes the numbers of a panel, and then
// launch(panel, first), which multiplies them, for each panel. `first`: its first column.
template <class Write, class Launch>
Status each(const Gemm& gemm, const Call& call, Bound& bound, const Write& write,
            const Launch& launch) {
  const WeightCodes& codes = *gemm.weight.codes;
  Scratch scratch(call.workspace);
  std::byte* const numbers = book(gemm.n, gemm.k, call.device, scratch);
  const std::int64_t rows = panel_columns(gemm.n, call.device), stride = panel_stride(gemm.k);
  for (std::int64_t first = 0; first < gemm.n; first += rows) {
    Gemm panel = columns_of(gemm, first, std::min(rows, gemm.n - first));
    panel.weight = {reinterpret_cast<const std::uint8_t*>(numbers), panel.n == 1 ? 0 : stride, 1,
                    codes.values};
    if (gemm.k > 0) PLANQ_TRY(write(codes, first, panel.n, numbers, stride, bound));
    PLANQ_TRY(launch(panel, first));
  }
  return Status::success();
}

// Of dequantized numbers: calls launch(panel).
template <class Launch>
Status launch(const Gemm& gemm, const Call& call, Bound& bound, const Launch& launch) {
  return each(gemm, call, bound, launch_dequantize,
              [&](const Gemm& panel, std::int64_t) { return launch(panel); });
}

}  // namespace panels
}  // namespace planq::linear
