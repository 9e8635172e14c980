// Which kernel multiplies by a weight.
#include "ops/gguf/blocks.h"
#include "ops/gguf/linear_gguf/launch.h"
#include "ops/gguf/products/cuda_products.h"

namespace planq::gguf {
namespace {

// Calls use(Block<type>{}) for a type that a descriptor can have.
template <class Use>
Status with_block(GgufType type, const Use& use) {
  return by_type(type, [&](auto block) {
    using B = decltype(block);
    if constexpr (B::kType == GgufType::Q8_1 || B::kType == GgufType::Q8_K)
      return Status::success();
    else
      return use(block);
  });
}

Status launch_large(const Product& product, const Device& device, Bound& bound) {
  return with_block(product.type, [&](auto block) {
    using B = decltype(block);
    return linear_gguf::takes_many_rows<B>(product.gemm, device)
               ? linear_gguf::launch_many_rows<B>(product.gemm, device, bound)
               : linear_gguf::launch_few_rows<B>(product.gemm, device, bound);
  });
}

}  // namespace

Status preload_products(GgufType type, const Device& device) {
  if (const Status status = preload_small_products(device); !status.ok()) return status;
  return with_block(type, [&](auto block) {
    using B = decltype(block);
    const Status status = linear_gguf::preload_few_rows<B>(device);
    return status.ok() ? linear_gguf::preload_many_rows<B>(device) : status;
  });
}

Status launch_products(std::span<const Product> products, const Device& device, Bound& bound) {
  if (const Status status = launch_small_products(products, device, bound); !status.ok())
    return status;
  for (const Product& product : products) {
    if (product.gemm.empty() || is_small(product)) continue;
    bound.follow();
    if (const Status status = launch_large(product, device, bound); !status.ok()) return status;
  }
  return Status::success();
}

}  // namespace planq::gguf
