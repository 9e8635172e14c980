// linear_gguf_merged on CUDA: the plans of linear_gguf, one for each weight.

#include "ops/gguf/linear_gguf_merged/desc.h"

namespace planq::linear_gguf_merged {
namespace {

constexpr Kernel kKernels[] = {kernel_of_products<DType::Float16, Backend::Cuda>(),
                               kernel_of_products<DType::BFloat16, Backend::Cuda>(),
                               kernel_of_products<DType::Float32, Backend::Cuda>(),
                               kKernelOfParts<Backend::Cuda>};

}  // namespace
}  // namespace planq::linear_gguf_merged

PLANQ_KERNELS(linear_gguf_merged, cuda, kKernels);
