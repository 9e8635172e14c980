// linear_gguf on CUDA: the products of codes with blocks, and of floats the launches of its parts.
// The product may begin before the quantization has ended.
#include "ops/gguf/blocks.h"
#include "ops/gguf/linear_gguf/desc.h"
#include "ops/gguf/linear_gguf/launch.h"

namespace planq::linear_gguf {
namespace {

// Calls use(Block<type>{}) for a type that a descriptor can have.
template <class Use>
Status with_block(GgufType type, const Use& use) {
  return gguf::by_type(type, [&](auto block) {
    using B = decltype(block);
    if constexpr (B::kType == GgufType::Q8_1 || B::kType == GgufType::Q8_K)
      return Status::success();
    else
      return use(block);
  });
}

Status prepare(const Descriptor& descriptor, const Device& device, State&) {
  return with_block(descriptor.as<Fields>().type, [&](auto block) {
    const Status status = preload_few_rows<decltype(block)>(device);
    return status.ok() ? preload_many_rows<decltype(block)>(device) : status;
  });
}

Status bind(const Call& call, Bound& bound) {
  const linear::Gemm gemm = gemm_of(call);
  if (gemm.empty()) return Status::success();
  return with_block(call.fields<Fields>().type, [&](auto block) {
    using B = decltype(block);
    const bool many = !takes_small_weight<B>(gemm) && takes_many_rows<B>(gemm, call.device);
    return many ? launch_many_rows<B>(gemm, call.device, bound)
                : launch_few_rows<B>(gemm, call.device, bound);
  });
}

template <DType kOutputType>
constexpr Kernel kBlocks = kernel<kOutputType, Backend::Cuda>(prepare, bind);

constexpr Kernel kKernels[] = {kBlocks<DType::Float16>, kBlocks<DType::BFloat16>,
                               kBlocks<DType::Float32>, kKernelOfParts<Backend::Cuda>};

}  // namespace
}  // namespace planq::linear_gguf

PLANQ_KERNELS(linear_gguf, cuda, kKernels);
