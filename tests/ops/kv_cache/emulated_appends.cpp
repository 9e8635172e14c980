// The CUDA kernels of the family, on a processor: see tests/support/emulated. PLANQ_ELEMENT is the
// type of keys and values.
#include <cstdlib>
#include <vector>

#include "cuda/launch.cuh"
#include "ops/kv_cache/kv_cache_append/cuda.cuh"

namespace {

using namespace planq;

// Operands in the order of the operator, as test_emulated_appends.py fills them; one that is not
// there has no data.
struct Given {
  void* data;
  std::int64_t strides[4];
  std::int32_t rank;
};

using Bind = Status (*)(const Call&, Bound&);

// Float32 alone is rounded.
template <DType kCacheType>
Bind rounding_bind() {
  if constexpr (cuda::kElement == DType::Float32) return kv_cache_append::bind<kCacheType>;
  return nullptr;
}

}  // namespace

// Types of the cache by number: that of the inputs, those of codes, and those of 16 bits.
extern "C" void append(const std::int64_t* extents, std::int64_t value_dim, std::int64_t pages,
                       std::int64_t page_size, bool by_head, int cache, int scales,
                       int multiprocessors, const Given* given) {
  constexpr DType kTypes[] = {cuda::kElement,    DType::Int8,    DType::Float8E4M3FN,
                              DType::Float8E5M2, DType::Float16, DType::BFloat16};
  Descriptor descriptor;
  auto& fields = descriptor.as<kv_cache_append::Fields>();
  fields = {};
  fields.key_shape = {3, {extents[0], extents[1], extents[2]}};
  fields.value_dim = value_dim;
  fields.pages = pages;
  fields.page_size = page_size;
  fields.layout = by_head ? CacheLayout::Hnd : CacheLayout::Nhd;
  fields.input_dtype = cuda::kElement;
  fields.cache_dtype = kTypes[cache];
  constexpr CacheScale kScales[] = {CacheScale::Unset, CacheScale::Tensor, CacheScale::Head,
                                    CacheScale::Token};
  fields.scale_scope = kScales[scales];
  std::vector<OperandView> views(std::size(kv_cache_append::kOperands));
  for (std::size_t i = 0; i < views.size(); ++i) {
    views[i].data = given[i].data;
    views[i].rank = given[i].rank;
    std::copy_n(given[i].strides, 4, views[i].strides.begin());
  }
  Device device;
  device.multiprocessors = multiprocessors;
  State state;
  Bound bound;
  const Bind binds[] = {kv_cache_append::bind<cuda::kElement>,
                        kv_cache_append::bind<DType::Int8>,
                        kv_cache_append::bind<DType::Float8E4M3FN>,
                        kv_cache_append::bind<DType::Float8E5M2>,
                        rounding_bind<DType::Float16>(),
                        rounding_bind<DType::BFloat16>()};
  if (!binds[cache]({descriptor, device, state, Operands(views), {}}, bound).ok()) std::abort();
}
