// rotary_embedding on the host: heads one after another, in loops that are compiled for every
// instruction set.

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/sku.h"
#include "host/bind.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "host/tree_sum.h"
#include "math/formats.h"
#include "ops/norm/arithmetic.h"
#include "ops/position/heads.h"
#include "ops/position/rotary_embedding/desc.h"

namespace planq::rotary_embedding {

using WidenColumns = void (*)(const void* from, std::int64_t count, float* to);
using TurnColumns = void (*)(const float* cosines, std::int64_t pairs, float* x);
struct Loops {
  WidenColumns widen;
  void (*narrow)(const float* from, std::int64_t count, void* to);
  TurnColumns turn_halves, turn_neighbours;
  void (*square)(const float* x, std::int64_t count, float* squares);
  void (*scale)(float factor, const float* weight, std::int64_t count, float* x);
};

}  // namespace planq::rotary_embedding

#define PLANQ_LOOPS "ops/position/rotary_embedding/loops.h"
#include "host/instruction_sets.h"

namespace planq::rotary_embedding {
namespace {

using position::Heads;
using std::int64_t;

// The fewest elements that are worth waking a thread for.
constexpr int64_t kGrain = 16384;

template <class T>
const Loops& head_loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kHeadLoops<T>;
  if (level == host::Level::Avx2) return host::avx2::kHeadLoops<T>;
#endif
  return host::baseline::kHeadLoops<T>;
}

WidenColumns widen_weights(DType dtype) {
  const int type = dtype == DType::Float16 ? 0 : dtype == DType::BFloat16 ? 1 : 2;
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kWidenWeights[type];
  if (level == host::Level::Avx2) return host::avx2::kWidenWeights[type];
#endif
  return host::baseline::kWidenWeights[type];
}

// A head that is read, normalised, turned and written.
template <class T>
class Head {
 public:
  Head(const Heads& heads, float eps) : heads_(heads), loops_(head_loops<T>()), eps_(eps) {}

  void compute(int64_t token, int64_t head) {
    T* const row = heads_.row<T>(token, head);
    const int64_t position = heads_.position(token);
    if (!heads_.has(position)) {
      std::fill_n(row, heads_.columns, math::narrow<T>(math::canonical_nan<float>()));
      return;
    }
    const void* const weight = heads_.weight(head);
    const int64_t columns = weight ? heads_.columns : heads_.rotary;
    loops_.widen(row, columns, x_);
    if (weight) normalize(weight, row);
    const auto turn = heads_.is_interleaved ? loops_.turn_neighbours : loops_.turn_halves;
    turn(heads_.cosines(position), heads_.rotary / 2, x_);
    loops_.narrow(x_, columns, row);
  }

 private:
  // The norm's results are rounded to the type of the elements, which `row` takes for a moment.
  void normalize(const void* weight, T* row) {
    const int64_t columns = heads_.columns;
    loops_.square(x_, columns, other_);
    const float squares = host::tree_sum_over(other_, columns);
    widen_weights(heads_.weight_dtype)(weight, columns, other_);
    loops_.scale(math::norm_factor(squares, heads_.length, eps_), other_, columns, x_);
    loops_.narrow(x_, columns, row);
    loops_.widen(row, columns, x_);
  }

  const Heads& heads_;
  const Loops& loops_;
  float eps_;
  float x_[kMostColumns], other_[kMostColumns];
};

template <DType kType>
Status compute(const Call& call, const Stream& stream) {
  using T = math::Stored<kType>;
  const Heads heads = heads_of(call);
  const float eps = heads.eps.get();
  const int64_t count = heads.tokens * heads.of_token;
  host::parallel_for(stream.threads, count, std::max<int64_t>(kGrain / heads.columns, 1),
                     [&](int64_t first, int64_t last) {
                       Head<T> head(heads, eps);
                       for (int64_t i = first; i < last; ++i)
                         head.compute(i / heads.of_token, i % heads.of_token);
                     });
  int64_t invalid = 0;
  for (int64_t token = 0; token < heads.tokens; ++token)
    invalid += heads.has(heads.position(token)) ? 0 : 1;
  *static_cast<int64_t*>(call.operands[kInvalid].data) = invalid;
  return Status::success();
}

template <DType kType>
constexpr Kernel make_kernel() {
  return {.op = "rotary_embedding",
          .body = "heads",
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
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>()};

}  // namespace
}  // namespace planq::rotary_embedding

PLANQ_KERNELS(rotary_embedding, host, kKernels);
