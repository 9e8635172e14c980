// The CUDA kernels of rotary_kv_cache_append, on a processor: see tests/support/emulated.
// PLANQ_ELEMENT is the type of the elements.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "cuda/launch.cuh"
#include "ops/kv_cache/rotary_kv_cache_append/cuda.cuh"

namespace planq::rotary_kv_cache_append {

// The parts, which are no kernels of their own.
static bool left_to_parts = false;
Reason rejects_parts_of(const Descriptor&, const Device&) { return Reason::accept(); }
std::size_t workspace(const Descriptor&, const Device&) { return 0; }
std::size_t prepared_workspace(const Descriptor&, const State&) { return 0; }
Status prepare(const Descriptor&, const Device&, State&) { return Status::success(); }
Status bind(const Call&, Bound&) {
  left_to_parts = true;
  return Status::success();
}

}  // namespace planq::rotary_kv_cache_append

namespace {

using namespace planq;
using namespace planq::rotary_kv_cache_append;

// Operands in the order of the operator, as test_emulated_turned_appends.py fills them; one that is
// not there has no data.
struct Given {
  void* data;
  std::int64_t strides[4];
  std::int32_t rank;
};
// The fields that are numbers, in the order of the operator; types and choices by number.
struct GivenFields {
  std::int64_t query_shape[3], key_heads, value_dim, rotary_dim, interleaved, wide, max_position,
      weights, pages, page_size, by_head, cache, scales, output;
};

constexpr DType kWeights[] = {DType::Unset, DType::Float16, DType::BFloat16, DType::Float32};
constexpr CacheScale kScales[] = {CacheScale::Unset, CacheScale::Tensor, CacheScale::Head,
                                  CacheScale::Token};
constexpr DType kCaches[] = {cuda::kElement,    DType::Int8,    DType::Float8E4M3FN,
                             DType::Float8E5M2, DType::Float16, DType::BFloat16};
constexpr DType kOutputs[] = {DType::Unset, DType::Float16, DType::BFloat16, DType::Float32};

using Run = int (*)(const Call&, Bound&, bool);

template <DType kCacheType>
int run(const Call& call, Bound& bound, bool by_warps) {
  const Reason reason = by_warps ? rejects_warps<kCacheType>(call.descriptor, call.device)
                                 : rejects_heads<kCacheType>(call.descriptor, call.device);
  if (!reason.accepted()) return 1;
  left_to_parts = false;
  const Status status =
      by_warps ? bind_warps<kCacheType>(call, bound) : bind_heads<kCacheType>(call, bound);
  if (!status.ok()) std::abort();
  return left_to_parts ? 2 : 0;
}
// Float32 alone is rounded.
template <DType kCacheType>
Run rounding_run() {
  if constexpr (cuda::kElement == DType::Float32) return run<kCacheType>;
  return nullptr;
}

}  // namespace

// 0: the kernel has run; 1: it rejects the descriptor; 2: it leaves the operands to the parts.
extern "C" int turn_and_append(const GivenFields* own, bool by_warps, int multiprocessors,
                               const Given* given) {
  Descriptor descriptor;
  auto& fields = descriptor.as<Fields>();
  fields = {};
  fields.query_shape = {3, {own->query_shape[0], own->query_shape[1], own->query_shape[2]}};
  fields.key_heads = own->key_heads;
  fields.value_dim = own->value_dim;
  fields.rotary_dim = own->rotary_dim;
  fields.pairs = own->interleaved ? RotaryPairs::Interleaved : RotaryPairs::Neox;
  fields.dtype = cuda::kElement;
  fields.position_dtype = own->wide ? DType::Int64 : DType::Int32;
  fields.max_position = own->max_position;
  fields.norm_weight_dtype = kWeights[own->weights];
  fields.pages = own->pages;
  fields.page_size = own->page_size;
  fields.layout = own->by_head ? CacheLayout::Hnd : CacheLayout::Nhd;
  fields.cache_dtype = kCaches[own->cache];
  fields.scale_scope = kScales[own->scales];
  fields.output_dtype = kOutputs[own->output];
  std::vector<OperandView> views(std::size(kOperands));
  for (std::size_t i = 0; i < views.size(); ++i) {
    views[i].data = given[i].data;
    views[i].rank = given[i].rank;
    if (given[i].data) views[i].dtype = DType::Float64;  // of a scalar in memory
    std::copy_n(given[i].strides, 4, views[i].strides.begin());
  }
  Device device;
  device.multiprocessors = multiprocessors;
  State state;
  Bound bound;
  const Run runs[] = {run<cuda::kElement>,
                      run<DType::Int8>,
                      run<DType::Float8E4M3FN>,
                      run<DType::Float8E5M2>,
                      rounding_run<DType::Float16>(),
                      rounding_run<DType::BFloat16>()};
  return runs[own->cache]({descriptor, device, state, Operands(views), {}}, bound, by_warps);
}
