// linear_llm_int8 on the host with TensorSm90, for some rows at a time: the gemm of the codes to
// int32 sums, and these times the scales of their rows. Then the gemm of the outliers with the
// weight's codes at their columns, as one chain of groups of a tensor core that begins at these
// sums.
#include <algorithm>
#include <cstdint>

#include "host/bind.h"
#include "ops/linear/linear_llm_int8/host_rows.h"

namespace planq::linear_llm_int8 {
namespace {

using linear::Gemm;
using std::uint16_t;

struct ChainRoom {
  uint16_t* codes;  // (n, capacity), in the outliers' type
  std::int32_t* sums;
  float* scaled;
  std::size_t bytes;

  ChainRoom(const Fields& f, Scratch scratch) {
    codes = scratch.take<uint16_t>(held_in(f.columns(), f.capacity));
    const std::size_t held = held_in(held_rows(f), f.columns());
    sums = scratch.take<std::int32_t>(held);
    scaled = scratch.take<float>(held);
    bytes = scratch.bytes();
  }
};

// Gathers the weight's codes at the listed columns. 16-bit types hold every code exactly.
template <class T>
void gather(const Gemm& p, const ChainRoom& room, int threads) {
  const linear::Outliers& list = p.epilogue.outliers;
  const int64_t listed = list.listed();
  host::parallel_for(
      threads, p.n, std::max<int64_t>(kGrain / std::max<int64_t>(listed, 1), 1),
      [&](int64_t first, int64_t last) {
        for (int64_t n = first; n < last; ++n)
          for (int64_t j = 0; j < listed; ++j)
            room.codes[n * list.capacity + j] =
                math::narrow<T>(static_cast<float>(listed_code(p.weight, n, list.index[j], p.k)))
                    .bits;
      });
}

// Adds the gemm of some rows' outliers with the gathered codes to the rows' scaled sums.
void add_chain(const Gemm& p, int64_t first, int64_t count, const ChainRoom& room, int threads) {
  const linear::Outliers& list = p.epilogue.outliers;
  Gemm chain;
  chain.m = count;
  chain.n = p.n;
  chain.k = list.listed();
  if (chain.k == 0) return;
  chain.input = {static_cast<const std::uint8_t*>(list.values), list.row, 1, list.dtype};
  linear::detail::move_operand(chain.input, first * list.row);
  chain.weight = {reinterpret_cast<const std::uint8_t*>(room.codes), list.capacity, 1, list.dtype};
  chain.output = reinterpret_cast<std::uint8_t*>(room.scaled);
  chain.output_row = p.n;
  chain.output_dtype = DType::Float32;
  chain.continues = true;
  host::multiply_floats(chain, Accumulation::TensorSm90, threads);
}

// The outputs of some columns of a row, from their sums.
template <class T>
void finish(const Gemm& p, int64_t row, int64_t column, int64_t count, const float* sums) {
  const linear::Epilogue& e = p.epilogue;
  T* const to = reinterpret_cast<T*>(p.output) + row * p.output_row + column;
  for (int64_t i = 0; i < count; ++i)
    to[i] = math::narrow<T>(
        linear::finish_listed<float>(sums[i], linear::column_term<float>(e, column + i), e,
                                     linear::residual_at<float>(e, row, column + i)));
}

void finish(const Gemm& p, int64_t row, int64_t column, int64_t count, const float* sums) {
  switch (p.output_dtype) {
    case DType::Float16:
      return finish<math::Half>(p, row, column, count, sums);
    case DType::BFloat16:
      return finish<math::Bfloat16>(p, row, column, count, sums);
    default:
      return finish<float>(p, row, column, count, sums);
  }
}

// The outputs of some rows.
void multiply_rows(const Gemm& p, int64_t first, int64_t count, const ChainRoom& room,
                   int threads) {
  sum_rows(p, first, count, room.sums, threads);
  for_pieces(count, p.n, threads, [&](int64_t row, int64_t column, int64_t columns) {
    const float scale = linear::row_term<float>(p.epilogue, first + row).scale;
    const int64_t at = row * p.n + column;
    for (int64_t i = at; i < at + columns; ++i)
      room.scaled[i] = static_cast<float>(room.sums[i]) * scale;
  });
  add_chain(p, first, count, room, threads);
  for_pieces(count, p.n, threads, [&](int64_t row, int64_t column, int64_t columns) {
    finish(p, first + row, column, columns, room.scaled + row * p.n + column);
  });
}

Status compute(const Call& call, const Stream& stream) {
  const Fields& f = call.fields<Fields>();
  const ChainRoom room(f, Scratch(call.workspace));
  const Gemm gemm = gemm_with(call, call.operands[kOutlier]);
  if (gemm.empty()) return Status::success();
  if (f.outlier_dtype == DType::Float16)
    gather<math::Half>(gemm, room, stream.threads);
  else
    gather<math::Bfloat16>(gemm, room, stream.threads);
  for (int64_t batch = 0; batch < gemm.batch.size(); ++batch) {
    const Gemm one = gemm.at(batch);
    for (int64_t row = 0; row < one.m; row += kRows)
      multiply_rows(one, row, std::min(kRows, one.m - row), room, stream.threads);
  }
  return Status::success();
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  return ChainRoom(descriptor.as<Fields>(), Scratch()).bytes;
}

constexpr Kernel kKernels[] = {{.op = "linear_llm_int8",
                                .arithmetic = name_of(Accumulation::TensorSm90),
                                .body = "rows",
                                .revision = 1,
                                .backend = Backend::Host,
                                .arch = {},
                                .rank = 0,
                                .guarantee = kGuarantee<Accumulation::TensorSm90>,
                                .rejects = rejects<Accumulation::TensorSm90>,
                                .workspace = workspace,
                                .prepare = nothing_to_prepare,
                                .bind = host::bind<compute>}};

}  // namespace
}  // namespace planq::linear_llm_int8

PLANQ_KERNELS(linear_llm_int8, host_chain, kKernels);
