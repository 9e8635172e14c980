#include "../cuda.cuh"
#include "wrong.h"

namespace planq::matmul {
namespace {

constexpr Kernel kKernels[] = {wrong::on_cuda<SlicesBackwards>(kWrong),
                               wrong::on_cuda<SplitByBatch>(kWrong)};

}  // namespace
}  // namespace planq::matmul

PLANQ_KERNELS(matmul, cuda_wrong, kKernels);
