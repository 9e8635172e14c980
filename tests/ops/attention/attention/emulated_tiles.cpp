// The CUDA kernels of attention, on a processor: see tests/support/emulated. PLANQ_ELEMENT is the
// type of queries.
#include <vector>

#include "cuda/launch.cuh"
#include "ops/attention/attention/cuda_sm90a.cuh"

namespace {

using namespace planq;

// Operands in the order of the operator; one that is not there has no data.
struct Given {
  void* data;
  std::int64_t strides[4];
  std::int32_t rank;
};
// As test_emulated_tiles.py has it. Numbers of 0 are None, and so is a cap of NaN.
struct Problem {
  std::int64_t tokens, heads, columns, key_heads, value_dim, batch, max_query, max_key, pages,
      page_size, window;
  double soft_cap;
  std::int32_t layout, cache, output, scope, causal, with_lse, with_sink;
};

attention::Fields fields_of(const Problem& p) {
  constexpr DType kCaches[] = {cuda::kElement, DType::Int8, DType::Float8E4M3FN, DType::Float8E5M2};
  constexpr DType kOutputs[] = {DType::Float16, DType::BFloat16, DType::Float32};
  constexpr CacheScale kScopes[] = {CacheScale::Unset, CacheScale::Tensor, CacheScale::Head,
                                    CacheScale::Token};
  attention::Fields f;
  f.query_shape = {3, {p.tokens, p.heads, p.columns}};
  f.key_heads = p.key_heads;
  f.value_dim = p.value_dim;
  f.batch = p.batch;
  f.max_query = p.max_query;
  f.max_key = p.max_key;
  f.pages = p.pages;
  f.page_size = p.page_size;
  f.layout = p.layout ? CacheLayout::Hnd : CacheLayout::Nhd;
  f.input_dtype = cuda::kElement;
  f.cache_dtype = kCaches[p.cache];
  f.output_dtype = kOutputs[p.output];
  f.causal = p.causal;
  f.window = p.window;
  f.soft_cap = p.soft_cap;
  f.scale_scope = kScopes[p.scope];
  f.with_lse = p.with_lse;
  f.with_sink = p.with_sink;
  return f;
}

// Those of a body, by type of cache.
struct Body {
  Status (*binds[4])(const Call&, Bound&);
  std::size_t (*workspace)(const Descriptor&, const Device&);
};
template <class Steps>
constexpr Body kPlain = {
    {attention::bind<cuda::kElement, Steps>, attention::bind<DType::Int8, Steps>,
     attention::bind<DType::Float8E4M3FN, Steps>, attention::bind<DType::Float8E5M2, Steps>},
    attention::workspace};
constexpr Body kFast = {
    {attention::bind_fast<cuda::kElement>, attention::bind_fast<DType::Int8>,
     attention::bind_fast<DType::Float8E4M3FN>, attention::bind_fast<DType::Float8E5M2>},
    attention::fast_workspace<cuda::kElement>};
// As test_emulated_tiles.py calls them.
constexpr Body kBodies[] = {kPlain<attention::TensorCoreSteps>, kPlain<attention::ModelSteps>,
                            kFast};

}  // namespace

extern "C" void attend(const Problem* problem, const Given* given, int body) {
  Descriptor descriptor;
  descriptor.as<attention::Fields>() = fields_of(*problem);
  const auto& f = descriptor.as<attention::Fields>();
  std::vector<OperandView> views(std::size(attention::kOperands));
  for (std::size_t i = 0; i < views.size(); ++i) {
    views[i].data = given[i].data;
    views[i].rank = given[i].rank;
    std::copy_n(given[i].strides, 4, views[i].strides.begin());
  }
  views[attention::kQuery].dtype = cuda::kElement;
  for (const auto cache : {attention::kKeyCache, attention::kValueCache})
    views[cache].dtype = f.cache_dtype;
  views[attention::kScale].dtype = DType::Float64;
  Device device;
  device.multiprocessors = 4;
  std::vector<std::byte> room(kBodies[body].workspace(descriptor, device) + 256, std::byte{0xA5});
  auto* const base = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(room.data()) + 255) / 256 * 256);
  State state;
  Bound bound;
  const Call call{descriptor, device, state, Operands(views), {base, room.size() - 256}};
  const Status status = kBodies[body].binds[problem->cache](call, bound);
  if (!status.ok()) std::abort();
}
