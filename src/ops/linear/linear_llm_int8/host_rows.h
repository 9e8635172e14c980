// What the host's kernels share: the integer sums of some rows.
#pragma once

#include "host/thread_pool.h"
#include "ops/linear/host/gemm.h"
#include "ops/linear/linear_llm_int8/desc.h"

namespace planq::linear_llm_int8 {

// Rows whose sums are held at a time, columns of a row that stay in the cache, and outputs that
// make waking a thread worth it.
inline constexpr int64_t kRows = 256, kColumns = 512, kGrain = 1 << 13;

inline int64_t held_rows(const Fields& f) { return std::min(f.rows(), kRows); }

// The int32 sums of some rows, as contiguous rows of n.
inline void sum_rows(const linear::Gemm& p, int64_t first, int64_t count, std::int32_t* sums,
                     int threads) {
  linear::Gemm integers = p;
  integers.m = count;
  linear::detail::move_operand(integers.input, first * p.input.row_stride);
  integers.output = reinterpret_cast<std::uint8_t*>(sums);
  integers.output_row = p.n;
  integers.output_dtype = DType::Int32;
  integers.has_scales = false;
  integers.epilogue = {};
  host::multiply(integers, threads);
}

// Calls visit(row, column, columns) for all rows, in pieces of at most kColumns columns.
template <class Visit>
void for_pieces(int64_t rows, int64_t n, int threads, const Visit& visit) {
  const int64_t pieces = (n + kColumns - 1) / kColumns;
  host::parallel_for(threads, rows * pieces, std::max<int64_t>(kGrain / std::min(n, kColumns), 1),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i) {
                         const int64_t row = i / pieces, column = (i - row * pieces) * kColumns;
                         visit(row, column, std::min(kColumns, n - column));
                       }
                     });
}

}  // namespace planq::linear_llm_int8
