#include "../host.h"
#include "wrong.h"

namespace planq::matmul {
namespace {

constexpr Kernel kKernels[] = {wrong::on_host<SlicesBackwards>(kWrong),
                               wrong::on_host<SplitByBatch>(kWrong)};

}  // namespace
}  // namespace planq::matmul

PLANQ_KERNELS(matmul, host_wrong, kKernels);
