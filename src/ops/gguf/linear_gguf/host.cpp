// linear_gguf on the host: one product.

#include "host/bind.h"
#include "ops/gguf/linear_gguf/desc.h"
#include "ops/gguf/products/host_products.h"

namespace planq::linear_gguf {
namespace {

template <DType kOutputType>
Status compute(const Call& call, const Stream& stream) {
  const gguf::Product product{call.fields<Fields>().type, gemm_of(call)};
  gguf::multiply({&product, 1}, stream.threads, call.workspace);
  return Status::success();
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  return gguf::workspace_of_products(descriptor.as<Fields>().input_shape, 1);
}

template <DType kOutputType>
constexpr Kernel kBlocks = kernel<kOutputType, Backend::Host>(
    nothing_to_prepare, host::bind<compute<kOutputType>>, workspace);

constexpr Kernel kKernels[] = {kBlocks<DType::Float16>, kBlocks<DType::BFloat16>,
                               kBlocks<DType::Float32>, kKernelOfParts<Backend::Host>};

}  // namespace
}  // namespace planq::linear_gguf

PLANQ_KERNELS(linear_gguf, host, kKernels);
