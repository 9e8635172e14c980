// attention on CUDA, with queries of bfloat16: the model of sm_90's tensor cores, on any GPU.
#define PLANQ_ELEMENT BFloat16
#include "ops/attention/attention/cuda.cuh"

namespace planq::attention {
namespace {

template <DType kCache>
constexpr Kernel kModel = make_kernel<kCache, ModelSteps>("model", {80, kLastArch}, 1);

constexpr Kernel kKernels[] = {kModel<cuda::kElement>, kModel<DType::Int8>,
                               kModel<DType::Float8E4M3FN>, kModel<DType::Float8E5M2>};

}  // namespace
}  // namespace planq::attention

PLANQ_KERNELS(attention, cuda_bf16, kKernels);
