#include "../host.h"
#include "wrong.h"

namespace planq::norm {
namespace {

constexpr Kernel kKernels[] = {wrong::on_host<NanDropped>(kWrong)};

}  // namespace
}  // namespace planq::norm

PLANQ_KERNELS(norm, host_wrong, kKernels);
