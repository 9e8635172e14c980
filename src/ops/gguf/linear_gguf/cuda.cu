// linear_gguf on CUDA: the products of codes with blocks, and of floats one launch, or those of its
// parts. The product may begin before the quantization has ended.
#include "ops/gguf/linear_gguf/desc.h"
#include "ops/gguf/products/cuda_products.h"

namespace planq::linear_gguf {
namespace {

gguf::Product product_of(const Call& call) { return {call.fields<Fields>().type, gemm_of(call)}; }

Status prepare(const Descriptor& descriptor, const Device& device, State&) {
  return gguf::preload_products(descriptor.as<Fields>().type, device);
}
Status bind(const Call& call, Bound& bound) {
  const gguf::Product product = product_of(call);
  return gguf::launch_products({&product, 1}, call.device, bound);
}

Status prepare_floats(const Descriptor& descriptor, const Device& device, State& state) {
  if (const Status status = gguf::preload_small_products_of_floats(); !status.ok()) return status;
  return gguf::prepare_parts(descriptor, descriptor.as<Fields>().input(), device, state);
}
Status bind_floats(const Call& call, Bound& bound) {
  const gguf::Product product = product_of(call);
  return gguf::are_small_of_floats({&product, 1})
             ? gguf::launch_small_products({&product, 1}, call.device, bound)
             : gguf::bind_parts(call, call.fields<Fields>().input(), bound);
}

template <DType kOutputType>
constexpr Kernel kBlocks = kernel<kOutputType, Backend::Cuda>(prepare, bind);
constexpr Kernel kFloats =
    gguf::with_short_cut(kKernelOfParts<Backend::Cuda>, prepare_floats, bind_floats);

constexpr Kernel kKernels[] = {kBlocks<DType::Float16>, kBlocks<DType::BFloat16>,
                               kBlocks<DType::Float32>, kFloats};

}  // namespace
}  // namespace planq::linear_gguf

PLANQ_KERNELS(linear_gguf, cuda, kKernels);
