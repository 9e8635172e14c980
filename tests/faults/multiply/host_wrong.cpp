#include "../host.h"
#include "wrong.h"

namespace planq::multiply {
namespace {

constexpr Kernel kKernels[] = {
    wrong::on_host<FlushToZero>(kWrong), wrong::on_host<UnwrittenByte>(kWrong),
    wrong::on_host<PastTail>(kWrong), wrong::on_host<OneBitByAlignment>(kWrong)};

}  // namespace
}  // namespace planq::multiply

PLANQ_KERNELS(multiply, host_wrong, kKernels);
