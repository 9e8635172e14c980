// merge_attention_states on the host: chunks of columns, in loops that are compiled for every
// instruction set.

#include <algorithm>
#include <cstdint>

#include "core/sku.h"
#include "host/bind.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/attention/merge_attention_states/desc.h"

namespace planq::merge_attention_states {

// Columns of a chunk.
constexpr std::int64_t kChunk = 256;

using MergeColumns = void (*)(const math::OutputMerging& merging, const void* one,
                              const void* other, std::int64_t count, void* to);

}  // namespace planq::merge_attention_states

#define PLANQ_LOOPS "ops/attention/merge_attention_states/loops.h"
#include "host/instruction_sets.h"

namespace planq::merge_attention_states {
namespace {

using std::int64_t;

// The fewest elements that are worth waking a thread for.
constexpr int64_t kGrain = 16384;

template <class T>
MergeColumns merge_columns() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kMergeColumns<T>;
  if (level == host::Level::Avx2) return host::avx2::kMergeColumns<T>;
#endif
  return host::baseline::kMergeColumns<T>;
}

template <class T>
class Rows {
 public:
  explicit Rows(const Call& call)
      : columns_(call.fields<Fields>().shape[2]),
        heads_(call.fields<Fields>().shape[1]),
        one_(call.operands[kOutputA]),
        other_(call.operands[kOutputB]),
        one_lse_(call.operands[kLseA]),
        other_lse_(call.operands[kLseB]),
        output_(call.operands[kOutput]),
        lse_(call.operands[kLse]) {}

  void merge(int64_t row) const {
    const int64_t token = row / heads_, head = row % heads_;
    const math::OutputMerging merging(*one_lse_.at(token, head), *other_lse_.at(token, head));
    *lse_.at(token, head) = merging.lse;
    const T *const one = one_.at(token, head), *const other = other_.at(token, head);
    T* const to = output_.at(token, head);
    for (int64_t at = 0; at < columns_; at += kChunk)
      merge_(merging, one + at, other + at, std::min(kChunk, columns_ - at), to + at);
  }

 private:
  const MergeColumns merge_ = merge_columns<T>();
  const int64_t columns_, heads_;
  const Heads<const T> one_, other_;
  const Heads<const float> one_lse_, other_lse_;
  const Heads<T> output_;
  const Heads<float> lse_;
};

template <DType kType>
Status compute(const Call& call, const Stream& stream) {
  const Fields& f = call.fields<Fields>();
  const Rows<math::Stored<kType>> rows(call);
  host::parallel_for(stream.threads, f.rows(), std::max<int64_t>(kGrain / (f.shape[2] + 1), 1),
                     [&](int64_t first, int64_t last) {
                       for (int64_t row = first; row < last; ++row) rows.merge(row);
                     });
  return Status::success();
}

template <DType kType>
constexpr Kernel kMerge = {.op = "merge_attention_states",
                           .body = "rows",
                           .dtypes = kDTypes<kType, kType>,
                           .revision = 1,
                           .backend = Backend::Host,
                           .arch = {},
                           .rank = 0,
                           .guarantee = kGuarantee,
                           .rejects = rejects<kType>,
                           .workspace = no_workspace,
                           .prepare = nothing_to_prepare,
                           .bind = host::bind<compute<kType>>};

constexpr Kernel kKernels[] = {kMerge<DType::Float16>, kMerge<DType::BFloat16>,
                               kMerge<DType::Float32>};

}  // namespace
}  // namespace planq::merge_attention_states

PLANQ_KERNELS(merge_attention_states, host, kKernels);
