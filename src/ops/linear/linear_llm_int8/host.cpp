// linear_llm_int8 on the host, for some rows at a time: the gemm of the codes to int32 sums, then
// the sums with their scales, one listed column after another, and the rest of the epilogue.
#include <algorithm>
#include <cstdint>

#include "host/bind.h"
#include "ops/linear/linear_llm_int8/host_rows.h"

namespace planq::host {

template <class C>
struct ListedLoops {
  // Sums times their row's scale.
  void (*scale)(const std::int32_t* sums, std::int64_t count, C scale, C* to);
  // Adds the value of a listed column times the weight's codes there.
  void (*add)(C value, const std::int8_t* codes, std::int64_t count, C* sums);
};

}  // namespace planq::host

#define PLANQ_LOOPS "ops/linear/linear_llm_int8/loops.h"
#include "host/instruction_sets.h"

namespace planq::linear_llm_int8 {
namespace {

using linear::Gemm;
using math::Compute;

template <class C>
const host::ListedLoops<C>& listed_loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kListedLoops<C>;
  if (level == host::Level::Avx2) return host::avx2::kListedLoops<C>;
#endif
  return host::baseline::kListedLoops<C>;
}

struct HostRoom {
  Room room;
  std::int32_t* sums;
  std::size_t bytes;

  HostRoom(const Fields& f, Scratch scratch) : room(f, scratch) {
    const auto rows = static_cast<std::size_t>(held_rows(f));
    sums = scratch.take<std::int32_t>(rows * static_cast<std::size_t>(f.columns()));
    bytes = scratch.bytes();
  }
};

// Fills the room.
void gather(const Call& call, const Gemm& gemm, const Room& room, int threads) {
  const Fields& f = call.fields<Fields>();
  const int64_t listed = gemm.epilogue.outliers.listed();
  const auto* index = static_cast<const std::int32_t*>(call.operands[kIndex].data);
  // A row of the weight at a time, as it lies in memory.
  host::parallel_for(threads, gemm.n, std::max<int64_t>(kGrain / std::max<int64_t>(listed, 1), 1),
                     [&](int64_t first, int64_t last) {
                       for (int64_t n = first; n < last; ++n)
                         for (int64_t j = 0; j < listed; ++j)
                           room.codes[j * room.code_pitch + n] =
                               listed_code(gemm.weight, n, index[j], gemm.k);
                     });
  const IndexSpace rows = value_rows(f, call.operands, room);
  const void* given = call.operands[kOutlier].data;
  for (int64_t row = 0; row < f.rows(); ++row) {
    const Offsets at = rows.offsets(row);
    for (int64_t j = 0; j < listed; ++j) {
      if (f.compute() == DType::Float64)
        static_cast<double*>(room.values)[at.at[kHeld] + j] =
            math::load_scale<double>(given, at.at[kGiven] + j, f.outlier_dtype);
      else
        static_cast<float*>(room.values)[at.at[kHeld] + j] =
            math::load_scale<float>(given, at.at[kGiven] + j, f.outlier_dtype);
    }
  }
}

// The outputs of some columns of a row, at most kColumns, from their sums.
template <class T>
void finish(const Gemm& p, int64_t row, int64_t column, int64_t count, const std::int32_t* sums) {
  using C = Compute<T>;
  const linear::Epilogue& e = p.epilogue;
  const auto& loops = listed_loops<C>();
  C values[kColumns];
  loops.scale(sums, count, linear::row_term<C>(e, row).scale, values);
  const C* outliers = static_cast<const C*>(e.outliers.values) + row * e.outliers.row;
  for (int64_t j = 0; j < e.outliers.listed(); ++j)
    loops.add(outliers[j], e.outliers.codes + j * e.outliers.pitch + column, count, values);
  T* const to = reinterpret_cast<T*>(p.output) + row * p.output_row + column;
  for (int64_t i = 0; i < count; ++i)
    to[i] =
        math::narrow<T>(linear::finish_listed<C>(values[i], linear::column_term<C>(e, column + i),
                                                 e, linear::residual_at<C>(e, row, column + i)));
}

void finish(const Gemm& p, int64_t row, int64_t column, int64_t count, const std::int32_t* sums) {
  switch (p.output_dtype) {
    case DType::Float16:
      return finish<math::Half>(p, row, column, count, sums);
    case DType::BFloat16:
      return finish<math::Bfloat16>(p, row, column, count, sums);
    case DType::Float32:
      return finish<float>(p, row, column, count, sums);
    default:
      return finish<double>(p, row, column, count, sums);
  }
}

// The outputs of some rows.
void multiply_rows(const Gemm& p, int64_t first, int64_t count, std::int32_t* sums, int threads) {
  sum_rows(p, first, count, sums, threads);
  for_pieces(count, p.n, threads, [&](int64_t row, int64_t column, int64_t columns) {
    finish(p, first + row, column, columns, sums + row * p.n + column);
  });
}

Status compute(const Call& call, const Stream& stream) {
  const HostRoom room(call.fields<Fields>(), Scratch(call.workspace));
  const Gemm gemm = gemm_of(call, room.room);
  if (gemm.empty()) return Status::success();
  gather(call, gemm, room.room, stream.threads);
  for (int64_t batch = 0; batch < gemm.batch.size(); ++batch) {
    const Gemm one = gemm.at(batch);
    for (int64_t row = 0; row < one.m; row += kRows)
      multiply_rows(one, row, std::min(kRows, one.m - row), room.sums, stream.threads);
  }
  return Status::success();
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  return HostRoom(descriptor.as<Fields>(), Scratch()).bytes;
}

constexpr Kernel kKernels[] = {{.op = "linear_llm_int8",
                                .arithmetic = name_of(Accumulation::Sequential),
                                .body = "tiles",
                                .revision = 1,
                                .backend = Backend::Host,
                                .arch = {},
                                .rank = 0,
                                .guarantee = kGuarantee<Accumulation::Sequential>,
                                .rejects = rejects<Accumulation::Sequential>,
                                .workspace = workspace,
                                .prepare = nothing_to_prepare,
                                .bind = host::bind<compute>}};

}  // namespace
}  // namespace planq::linear_llm_int8

PLANQ_KERNELS(linear_llm_int8, host, kKernels);
