// spmm_coo on the host: chunks of the rows of the output, in loops that are compiled for every
// instruction set.

#include <algorithm>
#include <cstdint>

#include "core/sku.h"
#include "host/bind.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/outlier/matrix_rows.h"
#include "ops/outlier/spmm_coo/desc.h"

namespace planq::spmm_coo {

using std::int64_t;

// Columns of a chunk.
constexpr int64_t kChunk = 512;

// The entries of one row.
struct RowEntries {
  const std::int32_t* columns;
  const void* values;
  DType value_dtype;
  int64_t first, last;
  int64_t column_count;  // of the sparse matrix

  bool takes_part(int64_t i) const { return columns[i] >= 0 && columns[i] < column_count; }
  float value(int64_t i) const { return value_at(values, i, value_dtype); }
};

template <class W>
struct Loops {
  void (*add_neighbours)(const W* weight, int64_t count, float value, float* sums);
  void (*add_apart)(const W* weight, int64_t stride, int64_t count, const RowEntries& entries,
                    float* sums);
  void (*widen)(const void* from, int64_t count, float* to);
  void (*narrow)(const float* from, int64_t count, void* to);
};

}  // namespace planq::spmm_coo

#define PLANQ_LOOPS "ops/outlier/spmm_coo/loops.h"
#include "host/instruction_sets.h"

namespace planq::spmm_coo {
namespace {

// The fewest chunks that are worth waking a thread for.
constexpr int64_t kGrain = 8;

template <DType kDType>
struct WeightType {
  using type = math::Stored<kDType>;
};
template <>
struct WeightType<DType::Int8> {
  using type = std::int8_t;
};

template <class W, class T>
const Loops<W>& product_loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kProductLoops<W, T>;
  if (level == host::Level::Avx2) return host::avx2::kProductLoops<W, T>;
#endif
  return host::baseline::kProductLoops<W, T>;
}

template <class W, class T>
class Product {
 public:
  Product(const Fields& f, const Operands& operands)
      : fields_(f),
        operands_(operands),
        loops_(product_loops<W, T>()),
        outputs_(outlier::matrix_rows(f.shape, {&operands[kOutput]})),
        entries_(outlier::kept_entries(*data<int64_t>(kCount), f.capacity)) {}

  void run(int threads) const {
    const int64_t columns = output_columns(fields_), chunks = (columns + kChunk - 1) / kChunk;
    host::parallel_for(threads, outlier::rows_of(fields_.shape) * chunks, kGrain,
                       [&](int64_t first, int64_t last) {
                         for (int64_t i = first; i < last; ++i) {
                           const int64_t column = i % chunks * kChunk;
                           chunk(i / chunks, column, std::min(kChunk, columns - column));
                         }
                       });
  }

 private:
  template <class E>
  const E* data(int operand) const {
    return static_cast<const E*>(operands_[static_cast<std::size_t>(operand)].data);
  }

  RowEntries entries_of(int64_t row) const {
    const auto* const rows = data<std::int32_t>(kRowIndex);
    const auto index = [=](int64_t i) { return rows[i]; };
    return {data<std::int32_t>(kColumnIndex),
            data<void>(kValue),
            fields_.value_dtype,
            outlier::count_below(index, entries_, row),
            outlier::count_below(index, entries_, row + 1),
            fields_.shape.last()};
  }

  void chunk(int64_t row, int64_t column, int64_t count) const {
    T* const output =
        static_cast<T*>(operands_[kOutput].data) + outputs_.offsets(row).at[0] + column;
    const RowEntries entries = entries_of(row);
    if (entries.first == entries.last) {
      if (!fields_.accumulate) std::fill_n(output, count, outlier::element_of<T>(0));
      return;
    }
    float sums[kChunk] = {};
    add(entries, column, count, sums);
    if (has_stats(fields_)) {
      const float* const stats = data<float>(kStats) + column;
      for (int64_t j = 0; j < count; ++j) sums[j] = scaled(sums[j], stats[j]);
    }
    if (fields_.accumulate) {
      float held[kChunk];
      loops_.widen(output, count, held);
      for (int64_t j = 0; j < count; ++j) sums[j] = held[j] + sums[j];
    }
    loops_.narrow(sums, count, output);
  }

  void add(const RowEntries& entries, int64_t column, int64_t count, float* sums) const {
    const auto* const weight = data<W>(kWeight);
    const int64_t stride = operands_[kWeight].strides[0];
    if (!fields_.transpose_weight) {
      loops_.add_apart(weight + column * stride, stride, count, entries, sums);
      return;
    }
    for (int64_t i = entries.first; i < entries.last; ++i)
      if (entries.takes_part(i))
        loops_.add_neighbours(weight + entries.columns[i] * stride + column, count,
                              entries.value(i), sums);
  }

  const Fields& fields_;
  const Operands& operands_;
  const Loops<W>& loops_;
  const IndexSpace outputs_;
  const int64_t entries_;
};

template <DType kWeightType, DType kOutputType>
Status compute(const Call& call, const Stream& stream) {
  using W = typename WeightType<kWeightType>::type;
  Product<W, math::Stored<kOutputType>>(call.fields<Fields>(), call.operands).run(stream.threads);
  return Status::success();
}

template <DType kWeightType, DType kOutputType>
constexpr Kernel make_kernel() {
  return {.op = "spmm_coo",
          .body = "rows",
          .dtypes = kDTypes<kWeightType, kOutputType>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kWeightType, kOutputType>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kWeightType, kOutputType>>};
}

template <DType kWeightType>
constexpr std::array kOfWeight = {make_kernel<kWeightType, DType::Float16>(),
                                  make_kernel<kWeightType, DType::BFloat16>(),
                                  make_kernel<kWeightType, DType::Float32>()};

constexpr auto kKernels =
    joined(kOfWeight<DType::Float16>, kOfWeight<DType::BFloat16>, kOfWeight<DType::Int8>);

}  // namespace
}  // namespace planq::spmm_coo

PLANQ_KERNELS(spmm_coo, host, kKernels);
