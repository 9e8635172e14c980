// spmm_coo on CUDA: pointers to the rows of the list, then a block for some columns of a row of the
// output, whose threads take the row's entries one after another. The file that includes this names
// the type of the weight:
//
//     #define PLANQ_WEIGHT Float16
#pragma once

#include <algorithm>
#include <array>

#include "core/scratch.h"
#include "core/sku.h"
#include "cuda/key_range.cuh"
#include "cuda/launch.cuh"
#include "ops/outlier/matrix_rows.h"
#include "ops/outlier/row_pointers.h"
#include "ops/outlier/spmm_coo/desc.h"

namespace planq::spmm_coo {
namespace {

using std::int64_t;
using std::uint32_t;

constexpr DType kWeightType = DType::PLANQ_WEIGHT;

template <DType kDType>
struct WeightOf {
  using type = math::Stored<kDType>;
};
template <>
struct WeightOf<DType::Int8> {
  using type = std::int8_t;
};
using W = typename WeightOf<kWeightType>::type;

constexpr int kThreads = 128;
// Columns of a thread: neighbours whose weights are neighbours too, or kThreads apart.
constexpr int kNeighbours = 8, kApart = 4;
// Entries whose weights are loaded together.
constexpr int kBatch = 4;
constexpr int64_t kMostBlocks = 0x7FFFFFFF;

struct ProductArgs {
  const std::int32_t *column_index, *pointer;
  const void* value;
  const W* weight;
  const float* stats;  // null: there are none
  void* output;
  IndexSpace outputs;
  DType value_dtype;
  bool accumulate;
  int64_t along, across;  // from a weight to the next one along k, and along the output's columns
  int64_t rows, columns, inner, chunks;  // inner: k
};

__device__ __forceinline__ float number(std::int8_t code) { return static_cast<float>(code); }
__device__ __forceinline__ float number(math::Half x) { return math::widen(x); }
__device__ __forceinline__ float number(math::Bfloat16 x) { return math::widen(x); }

// The weights of eight neighbouring columns, as they lie in memory and as numbers.
struct Neighbours {
  using Raw = std::conditional_t<sizeof(W) == 1, uint2, uint4>;
  static constexpr int kColumns = kNeighbours;

  static __device__ __forceinline__ int64_t column(int64_t first, int i) {
    return first + threadIdx.x * kColumns + i;
  }
  static __device__ __forceinline__ void load(const ProductArgs& args, int64_t k, int64_t first,
                                              Raw& raw) {
    const int64_t own = column(first, 0);
    if (own < args.columns) raw = *reinterpret_cast<const Raw*>(args.weight + k * args.along + own);
  }
  static __device__ __forceinline__ float weight(const Raw& raw, int i) {
    return weight_of<W>(raw, i);
  }

 private:
  template <class E>
  static __device__ __forceinline__ float weight_of(const Raw& raw, int i) {
    if constexpr (sizeof(E) == 1) {
      const uint32_t word = i < 4 ? raw.x : raw.y;
      return number(static_cast<std::int8_t>(word >> 8 * (i % 4)));
    } else {
      return cuda::element_of<E>(raw, i);
    }
  }
};

// The weights of columns that are apart, of any strides.
struct Apart {
  static constexpr int kColumns = kApart;
  struct Raw {
    W weight[kColumns];
  };

  static __device__ __forceinline__ int64_t column(int64_t first, int i) {
    return first + i * kThreads + threadIdx.x;
  }
  static __device__ __forceinline__ void load(const ProductArgs& args, int64_t k, int64_t first,
                                              Raw& raw) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int64_t own = column(first, i);
      if (own < args.columns) raw.weight[i] = args.weight[k * args.along + own * args.across];
    }
  }
  static __device__ __forceinline__ float weight(const Raw& raw, int i) {
    return number(raw.weight[i]);
  }
};

// The sums of a thread's columns over the entries of a row.
template <class Columns>
__device__ __forceinline__ void add_entries(const ProductArgs& args, int64_t first_entry,
                                            int64_t last_entry, int64_t first,
                                            float (&sums)[Columns::kColumns]) {
  for (int64_t entry = first_entry; entry < last_entry; entry += kBatch) {
    typename Columns::Raw raw[kBatch] = {};
    float value[kBatch];
    bool takes_part[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      value[b] = 0;
      takes_part[b] = false;
      if (entry + b >= last_entry) continue;
      const int64_t k = args.column_index[entry + b];
      takes_part[b] = k >= 0 && k < args.inner;
      if (!takes_part[b]) continue;
      value[b] = value_at(args.value, entry + b, args.value_dtype);
      Columns::load(args, k, first, raw[b]);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (!takes_part[b]) continue;
#pragma unroll
      for (int i = 0; i < Columns::kColumns; ++i)
        sums[i] = __fmaf_rn(value[b], Columns::weight(raw[b], i), sums[i]);
    }
  }
}

// Of one column: from its sum to what is stored.
template <class T>
__device__ __forceinline__ T finished(const ProductArgs& args, float sum, int64_t column,
                                      const T& held) {
  if (args.stats) sum = scaled(sum, args.stats[column]);
  if (args.accumulate) sum = math::widen(held) + sum;
  return math::narrow<T>(sum);
}

template <class T, class Columns>
__device__ __forceinline__ void store(const ProductArgs& args, T* output, int64_t first,
                                      const float (&sums)[Columns::kColumns]) {
  constexpr int kCount = Columns::kColumns;
  if constexpr (std::is_same_v<Columns, Neighbours>) {
    constexpr int kVectors = kCount * static_cast<int>(sizeof(T)) / cuda::kVectorBytes;
    const int64_t column = Columns::column(first, 0);
    if (column >= args.columns) return;
    auto* const to = reinterpret_cast<uint4*>(output + column);
    T result[kCount] = {};
    uint4 words[kVectors];
    if (args.accumulate) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) words[v] = to[v];
      memcpy(result, words, sizeof result);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) result[i] = finished(args, sums[i], column + i, result[i]);
    memcpy(words, result, sizeof words);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) to[v] = words[v];
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t column = Columns::column(first, i);
      if (column >= args.columns) continue;
      const T held = args.accumulate ? output[column] : T{};
      output[column] = finished(args, sums[i], column, held);
    }
  }
}

template <class T, class Columns>
__global__ void __launch_bounds__(kThreads) multiply(const __grid_constant__ ProductArgs args) {
  const int64_t items = args.rows * args.chunks;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t row = item / args.chunks;
    const int64_t first = (item - row * args.chunks) * (kThreads * Columns::kColumns);
    const int64_t first_entry = args.pointer[row], last_entry = args.pointer[row + 1];
    const bool any = first_entry < last_entry;
    if (!any && args.accumulate) continue;
    T* const output = static_cast<T*>(args.output) + args.outputs.offsets(row).at[0];
    float sums[Columns::kColumns] = {};
    add_entries<Columns>(args, first_entry, last_entry, first, sums);
    if (any) {
      store<T, Columns>(args, output, first, sums);
      continue;
    }
#pragma unroll
    for (int i = 0; i < Columns::kColumns; ++i) {
      const int64_t column = Columns::column(first, i);
      if (column < args.columns) output[column] = outlier::element_of<T>(0);
    }
  }
}

// --- Launches ----------------------------------------------------------------------------------

std::int32_t* book(Scratch& scratch, const Fields& f) {
  return scratch.take<std::int32_t>(static_cast<std::size_t>(outlier::rows_of(f.shape)) + 1);
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch scratch;
  book(scratch, descriptor.as<Fields>());
  return scratch.bytes();
}

template <class T>
Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(outlier::preload_pointers());
  PLANQ_TRY(cuda::preload(multiply<T, Neighbours>));
  return cuda::preload(multiply<T, Apart>);
}

template <class E>
E* data(const Call& call, Operand which) {
  return static_cast<E*>(call.operands[which].data);
}

ProductArgs product_args(const Call& call, const std::int32_t* pointer) {
  const Fields& f = call.fields<Fields>();
  const int64_t stride = call.operands[kWeight].strides[0];
  ProductArgs args{};
  args.column_index = data<const std::int32_t>(call, kColumnIndex);
  args.pointer = pointer;
  args.value = data<const void>(call, kValue);
  args.weight = data<const W>(call, kWeight);
  args.stats = has_stats(f) ? data<const float>(call, kStats) : nullptr;
  args.output = data<void>(call, kOutput);
  args.outputs = outlier::matrix_rows(f.shape, {&call.operands[kOutput]});
  args.value_dtype = f.value_dtype;
  args.accumulate = f.accumulate;
  args.along = f.transpose_weight ? stride : 1;
  args.across = f.transpose_weight ? 1 : stride;
  args.rows = outlier::rows_of(f.shape);
  args.columns = output_columns(f);
  args.inner = f.shape.last();
  return args;
}

// Whether eight columns of every row are whole vectors, in the weight and in the output.
template <class T>
bool has_vectors(const ProductArgs& args) {
  constexpr int kWeightBytes = kNeighbours * static_cast<int>(sizeof(W));
  bool whole = args.across == 1 && args.columns % kNeighbours == 0 &&
               args.along % kNeighbours == 0 && cuda::aligned_to(args.weight, kWeightBytes) &&
               cuda::aligned_to(args.output, cuda::kVectorBytes);
  for (int i = 0; i < args.outputs.rank; ++i)
    whole =
        whole &&
        args.outputs.axes[i].stride[0] * static_cast<int64_t>(sizeof(T)) % cuda::kVectorBytes == 0;
  return whole;
}

template <class T>
Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  Scratch scratch(call.workspace);
  std::int32_t* const pointer = book(scratch, f);
  ProductArgs args = product_args(call, pointer);
  if (args.rows == 0 || args.columns == 0) return Status::success();
  PLANQ_TRY(outlier::launch_pointers(
      {data<const std::int32_t>(call, kRowIndex), data<const int64_t>(call, kCount), pointer,
       f.capacity, args.rows + 1},
      bound));
  const bool vectors = has_vectors<T>(args);
  args.chunks = cuda::ceil_div(args.columns, kThreads * (vectors ? kNeighbours : kApart));
  cuda::Grid grid{};
  grid.blocks = std::min(args.rows * args.chunks, kMostBlocks);
  grid.threads = dim3(kThreads);
  return cuda::launch(vectors ? multiply<T, Neighbours> : multiply<T, Apart>, grid, args, bound);
}

template <DType kOutputType>
constexpr Kernel make_kernel() {
  using T = math::Stored<kOutputType>;
  return {.op = "spmm_coo",
          .method = "rows",
          .dtypes = kDTypes<kWeightType, kOutputType>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kWeightType, kOutputType>,
          .workspace = workspace,
          .prepare = prepare<T>,
          .bind = bind<T>};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>()};

}  // namespace
}  // namespace planq::spmm_coo
