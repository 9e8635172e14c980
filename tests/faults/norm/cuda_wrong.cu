#include "../cuda.cuh"
#include "wrong.h"

namespace planq::norm {
namespace {

constexpr Kernel kKernels[] = {wrong::on_cuda<NanDropped>(kWrong)};

}  // namespace
}  // namespace planq::norm

PLANQ_KERNELS(norm, cuda_wrong, kKernels);
