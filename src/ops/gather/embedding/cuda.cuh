// embedding on CUDA: lanes of a block share a row, a vector each at a time. Blocks behind those of
// the rows count the indices that name no row. The file that includes this names the type of the
// output: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/architectures.h"
#include "core/sku.h"
#include "cuda/counter.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/row_share.cuh"
#include "ops/gather/embedding/rows.h"
#include "ops/gather/embedding/table.cuh"

namespace planq::embedding {
namespace {

using cuda::Element;
using std::int64_t;

constexpr int kThreads = cuda::RowShare::kThreads;
// Vectors that a thread has under way.
constexpr int kEach = 4;

// Neighbours of a thread: no operand has more than 16 bytes of them.
template <DType kTableType>
constexpr int columns_of() {
  constexpr int kBytes = kTableType == DType::Float32                             ? 4
                         : kTableType == DType::Int8 || kTableType == DType::Int4 ? 1
                                                                                  : 2;
  return cuda::kVectorBytes / std::max(kBytes, static_cast<int>(sizeof(Element)));
}

struct GatherArgs {
  Rows rows;
  cuda::RowShare share;
  Table table;
  Element* output;
  FloatScalar factor;
  cuda::Counter invalid;
  int64_t row_blocks;
};

template <DType kTableType, int kCount>
__global__ void __launch_bounds__(kThreads) gather_rows(const __grid_constant__ GatherArgs args) {
  cuda::follow_previous();
  if (blockIdx.x >= args.row_blocks)
    return args.invalid.count<kThreads>(blockIdx.x - args.row_blocks, [&](int64_t at) {
      return !args.rows.has(args.rows.index(args.rows.space.offsets(at).at[0]));
    });
  const cuda::RowShare& share = args.share;
  const int64_t own = share.first_row() + share.own_row();
  if (own >= share.rows) return;
  const auto at = args.rows.space.offsets(own);
  const int64_t row = args.rows.index(at.at[0]);
  const bool exists = args.rows.has(row);
  const float factor = args.factor.get();
  Element* const output = args.output + at.at[1];
#pragma unroll 1
  for (int64_t first = share.first_unit(); first < share.units; first += kEach * share.step()) {
    Piece<kTableType, kCount> pieces[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t unit = first + k * share.step();
      if (exists && unit < share.units) pieces[k].load(args.table, row, unit * kCount);
    }
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t unit = first + k * share.step();
      if (unit >= share.units) break;
      float values[kCount] = {};
      if (exists) {
        pieces[k].widen(args.table, values);
#pragma unroll
        for (int i = 0; i < kCount; ++i) values[i] = values[i] * factor;
      }
      cuda::packed<Element>(values).store(output + unit * kCount);
    }
  }
}

template <DType kTableType, int kCount>
Status launch_rows(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& given = call.operands;
  const Rows rows(call);
  const cuda::RowShare share(rows.size(), f.width() / kCount, kEach, call.device);
  cuda::Grid grid = share.grid();
  const GatherArgs args = {rows,
                           share,
                           Table(call),
                           static_cast<Element*>(given[kOutput].data),
                           float_of(given[kFactor], 1),
                           cuda::Counter(rows.size(), given[kInvalid].data, call.device),
                           grid.blocks};
  grid.blocks += args.invalid.blocks;
  // A kernel behind a clearing waits for it by the stream's order.
  grid.dependent = args.invalid.blocks == 1 && has_dependent_launches(call.device.arch);
  PLANQ_TRY(args.invalid.clear(bound));
  return cuda::launch(gather_rows<kTableType, kCount>, grid, args, bound);
}

template <DType kTableType>
Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY((cuda::preload(gather_rows<kTableType, columns_of<kTableType>()>)));
  return cuda::preload(gather_rows<kTableType, 1>);
}

// Whether rows of the table are whole pieces at aligned addresses, each under one scale.
template <DType kTableType>
bool has_whole_pieces(const Call& call) {
  constexpr int kCount = columns_of<kTableType>();
  const Fields& f = call.fields<Fields>();
  if (f.group() % kCount != 0 || f.width() % kCount != 0) return false;
  constexpr int kCodesOfByte = kTableType == DType::Int4 ? 2 : 1;
  const int64_t size = storage_bytes(kTableType);
  return cuda::has_whole_words(call.operands[kTable], f.width() / kCodesOfByte * size, size,
                               static_cast<int>(kCount / kCodesOfByte * size));
}

template <DType kTableType>
Status bind(const Call& call, Bound& bound) {
  constexpr int kCount = columns_of<kTableType>();
  constexpr int kSize = sizeof(Element);
  const bool whole =
      has_whole_pieces<kTableType>(call) &&
      cuda::has_whole_words(call.operands[kOutput], call.fields<Fields>().width() * kSize, kSize,
                            kCount * kSize);
  return whole ? launch_rows<kTableType, kCount>(call, bound)
               : launch_rows<kTableType, 1>(call, bound);
}

template <DType kTableType>
constexpr Kernel make_kernel() {
  return {.op = "embedding",
          .body = "rows",
          .dtypes = kDTypes<kTableType, cuda::kElement>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80, kLastArch},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kTableType, cuda::kElement>,
          .workspace = no_workspace,
          .prepare = prepare<kTableType>,
          .bind = bind<kTableType>};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>(), make_kernel<DType::Int8>(),
                               make_kernel<DType::Int4>()};

}  // namespace
}  // namespace planq::embedding
