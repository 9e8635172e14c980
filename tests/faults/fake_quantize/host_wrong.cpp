#include "../host.h"
#include "wrong.h"

namespace planq::fake_quantize {
namespace {

constexpr Kernel kKernels[] = {wrong::on_host<PhiloxRepeats>(kWrong)};

}  // namespace
}  // namespace planq::fake_quantize

PLANQ_KERNELS(fake_quantize, host_wrong, kKernels);
