// spmm_coo on CUDA: a kernel finds where each row begins in the list. Then a thread block computes
// some columns of one row of the output; its threads take the row's entries one after another. If
// the weights of an entry are strided and the list may use most weights, a thread block computes
// some columns of all rows instead, with the weights of these columns in shared memory (a panel).
// The file that includes this defines the type of the weight:
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
#include "ops/outlier/turned_bytes.h"

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
// Columns of a thread: neighbours if their weights are neighbours too, else kThreads apart.
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
  bool words;             // weights can be read as aligned words of neighbours along k
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
  static constexpr bool kVectors = true;  // of the output, whole and aligned

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

// The weights of columns that are kThreads apart, with any strides.
struct Apart {
  static constexpr int kColumns = kApart;
  static constexpr bool kVectors = false;
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

// Adds the entries of a row to the sums of a thread's columns.
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

// The stored value of one column, from its sum. `held` is the old value.
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
  if constexpr (Columns::kVectors) {
    constexpr int kWords = kCount * static_cast<int>(sizeof(T)) / cuda::kVectorBytes;
    const int64_t column = Columns::column(first, 0);
    if (column >= args.columns) return;
    auto* const to = reinterpret_cast<uint4*>(output + column);
    T result[kCount] = {};
    uint4 words[kWords];
    if (args.accumulate) {
#pragma unroll
      for (int v = 0; v < kWords; ++v) words[v] = to[v];
      memcpy(result, words, sizeof result);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) result[i] = finished(args, sums[i], column + i, result[i]);
    memcpy(words, result, sizeof words);
#pragma unroll
    for (int v = 0; v < kWords; ++v) to[v] = words[v];
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

// Where a row of the output begins.
template <class T>
__device__ __forceinline__ T* output_row(const ProductArgs& args, int64_t row) {
  return static_cast<T*>(args.output) + args.outputs.offsets(row).at[0];
}

// Stores a row of the output; a row without entries is 0, or unchanged with `accumulate`.
template <class T, class Columns>
__device__ __forceinline__ void store_row(const ProductArgs& args, T* output, int64_t first,
                                          bool any, const float (&sums)[Columns::kColumns]) {
  if (any) {
    store<T, Columns>(args, output, first, sums);
    return;
  }
#pragma unroll
  for (int i = 0; i < Columns::kColumns; ++i) {
    const int64_t column = Columns::column(first, i);
    if (column < args.columns) output[column] = outlier::element_of<T>(0);
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
    T* const output = output_row<T>(args, row);
    float sums[Columns::kColumns] = {};
    add_entries<Columns>(args, first_entry, last_entry, first, sums);
    store_row<T, Columns>(args, output, first, any, sums);
  }
}

// --- Panels of columns ---------------------------------------------------------------------------

// A panel is 16 bytes of weights, kPanelColumns columns, for each k. A thread block has a panel;
// each of its threads computes rows of the output.
constexpr int kPanelThreads = 1024;
template <bool kWhole>  // whether the output can be stored by whole vectors
struct Panel {
  static constexpr int kColumns = cuda::kVectorBytes / sizeof(W);
  static constexpr bool kVectors = kWhole;

  static __device__ __forceinline__ int64_t column(int64_t first, int i) { return first + i; }
};
constexpr int kPanelColumns = Panel<true>::kColumns;
// Entries whose weights are loaded together, limited by registers.
constexpr int kPanelBatch = sizeof(W);
// A panel pays from this many rows on, and if the capacity has an entry for one in this many k.
constexpr int64_t kWorthRows = 64, kWorthEntries = 32 / sizeof(W);

// The position of the weights of a k in shared memory, permuted within its group. So lanes that
// store the weights of every fourth or every second k have no bank conflicts.
constexpr int kPanelGroup = 4;
__device__ __forceinline__ int panel_slot(int k) { return k ^ (k >> 3 & 3); }

// A word of neighbouring weights along k; those beyond the end are 0. kWords: the word is complete
// and aligned.
template <bool kWords>
__device__ __forceinline__ uint32_t load_neighbours(const W* from, int left) {
  if constexpr (kWords) return __ldcs(reinterpret_cast<const uint32_t*>(from));
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4 / static_cast<int>(sizeof(W)); ++i) {
    if (i >= left) continue;
    cuda::Word<sizeof(W)> bits;
    memcpy(&bits, from + i, sizeof bits);
    word |= uint32_t{bits} << (8 * sizeof(W) * i);
  }
  return word;
}

// Transposes words of columns to vectors of k.
__device__ __forceinline__ void turn_words(const uint32_t (&words)[kPanelColumns],
                                           uint4 (&vectors)[4 / sizeof(W)]) {
  uint32_t turned[4 / sizeof(W)][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(W) == 1) {
      uint32_t square[4] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
      outlier::turn_bytes(square);
#pragma unroll
      for (int k = 0; k < 4; ++k) turned[k][i] = square[k];
    } else {
      turned[0][i] = __byte_perm(words[2 * i], words[2 * i + 1], 0x5410);
      turned[1][i] = __byte_perm(words[2 * i], words[2 * i + 1], 0x7632);
    }
  }
  memcpy(vectors, turned, sizeof turned);
}

template <bool kWords>
__device__ __forceinline__ void fill_panel(const ProductArgs& args, int64_t first, uint4* panel) {
  constexpr int kPerWord = 4 / sizeof(W);
  const int inner = static_cast<int>(args.inner);  // shared memory has room for no more
#pragma unroll 1
  for (int k = threadIdx.x * kPerWord; k < inner; k += kPanelThreads * kPerWord) {
    uint32_t words[kPanelColumns];
#pragma unroll
    for (int i = 0; i < kPanelColumns; ++i)
      words[i] =
          first + i < args.columns
              ? load_neighbours<kWords>(args.weight + (first + i) * args.across + k, inner - k)
              : 0u;
    uint4 vectors[kPerWord];
    turn_words(words, vectors);
#pragma unroll
    for (int j = 0; j < kPerWord; ++j)
      if (k + j < inner) panel[panel_slot(k + j)] = vectors[j];
  }
}

// Weight `i` of a vector.
__device__ __forceinline__ float panel_weight(const uint4& v, int i) {
  if constexpr (sizeof(W) == 1) {
    // The bits of the float 2^23 + 128 + code.
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    const uint32_t bits = __byte_perm(words[i / 4] ^ 0x80808080u, 0x4B000000u, 0x7440u + i % 4);
    return __uint_as_float(bits) - 8388736.0f;
  } else {
    return cuda::element_of<W>(v, i);
  }
}

// The weights of an entry from memory.
__device__ __noinline__ uint4 gathered(const W* from, int64_t across, int columns) {
  W weights[kPanelColumns] = {};
#pragma unroll
  for (int i = 0; i < kPanelColumns; ++i)
    if (i < columns) weights[i] = from[i * across];
  uint4 v;
  memcpy(&v, weights, sizeof v);
  return v;
}

// The weights of a k, from the panel, or from memory if there is none.
__device__ __forceinline__ uint4 panel_weights(const ProductArgs& args, const uint4* panel, int k,
                                               int64_t first) {
  if (panel) return panel[panel_slot(k)];
  return gathered(args.weight + first * args.across + k, args.across,
                  static_cast<int>(min(args.columns - first, int64_t{kPanelColumns})));
}

__device__ __forceinline__ void add_panel_entries(const ProductArgs& args, const uint4* panel,
                                                  int64_t first_entry, int64_t last_entry,
                                                  int64_t first, float (&sums)[kPanelColumns]) {
#pragma unroll 1
  for (int64_t entry = first_entry; entry < last_entry; entry += kPanelBatch) {
    int k[kPanelBatch];
    float value[kPanelBatch];
#pragma unroll
    for (int b = 0; b < kPanelBatch; ++b) {
      const bool exists = entry + b < last_entry;
      k[b] = exists ? args.column_index[entry + b] : -1;
      value[b] = exists ? value_at(args.value, entry + b, args.value_dtype) : 0.0f;
    }
#pragma unroll
    for (int b = 0; b < kPanelBatch; ++b) {
      if (k[b] < 0 || k[b] >= args.inner) continue;
      const uint4 weights = panel_weights(args, panel, k[b], first);
#pragma unroll
      for (int i = 0; i < kPanelColumns; ++i)
        sums[i] = __fmaf_rn(value[b], panel_weight(weights, i), sums[i]);
    }
  }
}

// Whether the list is so long that reading all weights takes less memory traffic than reading a
// sector for each entry.
__device__ __forceinline__ bool is_long(const ProductArgs& args) {
  constexpr int64_t kSector = 32;
  return args.pointer[args.rows] * kSector >= args.inner * static_cast<int64_t>(sizeof(W));
}

template <class T, bool kWhole>
__global__ void __launch_bounds__(kPanelThreads, 1)
    multiply_panels(const __grid_constant__ ProductArgs args) {
  extern __shared__ uint4 shared_panel[];
  const uint4* panel = is_long(args) ? shared_panel : nullptr;
  for (int64_t item = blockIdx.x; item < args.chunks; item += gridDim.x) {
    const int64_t first = item * kPanelColumns;
    if (panel && args.words)
      fill_panel<true>(args, first, shared_panel);
    else if (panel)
      fill_panel<false>(args, first, shared_panel);
    __syncthreads();
#pragma unroll 1
    for (int64_t row = threadIdx.x; row < args.rows; row += kPanelThreads) {
      const int64_t first_entry = args.pointer[row], last_entry = args.pointer[row + 1];
      const bool any = first_entry < last_entry;
      if (!any && args.accumulate) continue;
      float sums[kPanelColumns] = {};
      add_panel_entries(args, panel, first_entry, last_entry, first, sums);
      store_row<T, Panel<kWhole>>(args, output_row<T>(args, row), first, any, sums);
    }
    __syncthreads();
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

// Whether a panel pays: weights of neighbouring columns are strided, a panel fits into shared
// memory, and there are enough rows and entries.
bool has_panels(const Fields& f, const Device& device) {
  const int64_t inner = f.shape.last();
  const auto room = static_cast<int64_t>(device.shared_memory_per_block / cuda::kVectorBytes);
  return !f.transpose_weight && inner <= room / kPanelGroup * kPanelGroup &&
         f.capacity >= inner / kWorthEntries && outlier::rows_of(f.shape) >= kWorthRows;
}

template <class T>
Status prepare(const Descriptor& descriptor, const Device& device, State&) {
  PLANQ_TRY(outlier::preload_pointers());
  if (has_panels(descriptor.as<Fields>(), device)) {
    const auto bytes = static_cast<int>(device.shared_memory_per_block);
    PLANQ_TRY((cuda::preload(multiply_panels<T, true>, bytes)));
    PLANQ_TRY((cuda::preload(multiply_panels<T, false>, bytes)));
  }
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

// Whether every row of the output consists of aligned vectors of this many columns.
template <class T>
bool has_output_vectors(const ProductArgs& args, int columns) {
  bool whole = args.columns % columns == 0 && cuda::aligned_to(args.output, cuda::kVectorBytes);
  for (int i = 0; i < args.outputs.rank; ++i)
    whole =
        whole &&
        args.outputs.axes[i].stride[0] * static_cast<int64_t>(sizeof(T)) % cuda::kVectorBytes == 0;
  return whole;
}
// Whether eight columns are aligned vectors of both the output and the weight.
template <class T>
bool has_vectors(const ProductArgs& args) {
  constexpr int kWeightBytes = kNeighbours * static_cast<int>(sizeof(W));
  return args.across == 1 && args.along % kNeighbours == 0 &&
         cuda::aligned_to(args.weight, kWeightBytes) && has_output_vectors<T>(args, kNeighbours);
}

template <class T>
Status launch_panels(ProductArgs& args, Bound& bound) {
  constexpr int kPerWord = 4 / sizeof(W);
  args.words =
      cuda::aligned_to(args.weight, 4) && args.across % kPerWord == 0 && args.inner % kPerWord == 0;
  args.chunks = cuda::ceil_div(args.columns, kPanelColumns);
  cuda::Grid grid{std::min(args.chunks, kMostBlocks), kPanelThreads};
  grid.shared_bytes =
      static_cast<int>(cuda::ceil_div(args.inner, kPanelGroup)) * kPanelGroup * cuda::kVectorBytes;
  return cuda::launch(has_output_vectors<T>(args, kPanelColumns) ? multiply_panels<T, true>
                                                                 : multiply_panels<T, false>,
                      grid, args, bound);
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
  if (has_panels(f, call.device)) return launch_panels<T>(args, bound);
  const bool vectors = has_vectors<T>(args);
  args.chunks = cuda::ceil_div(args.columns, kThreads * (vectors ? kNeighbours : kApart));
  const cuda::Grid grid{std::min(args.rows * args.chunks, kMostBlocks), kThreads};
  return cuda::launch(vectors ? multiply<T, Neighbours> : multiply<T, Apart>, grid, args, bound);
}

template <DType kOutputType>
constexpr Kernel make_kernel() {
  using T = math::Stored<kOutputType>;
  return {.op = "spmm_coo",
          .body = "rows",
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
