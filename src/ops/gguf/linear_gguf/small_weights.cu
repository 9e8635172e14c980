// The kernels of small_weights.cuh and small_tiles.cuh, with all types that they have.
#include "ops/gguf/linear_gguf/small_launch.cuh"
#include "ops/gguf/products/cuda_products.h"

namespace planq::gguf {

bool is_small(const Product& product) {
  return linear_gguf::takes_small_weight(product.type, product.gemm);
}
bool are_small_of_floats(std::span<const Product> products) {
  return linear_gguf::takes_small_floats(products);
}
Status launch_small_products(std::span<const Product> products, const Device& device,
                             Bound& bound) {
  return linear_gguf::launch_small_weights(products, device, bound);
}
Status preload_small_products(const Device& device) {
  return linear_gguf::preload_small_weights(device);
}
Status preload_small_products_of_floats() { return linear_gguf::preload_small_floats(); }

}  // namespace planq::gguf
