// linear_w8a8_dynamic on CUDA: the launches of its parts. A later part may begin before the one
// before it has ended.
#include "ops/linear/linear_w8a8_dynamic/desc.h"

namespace planq::linear_w8a8_dynamic {
namespace {

constexpr Kernel kKernels[] = {make_kernel<Backend::Cuda, 80>()};

}  // namespace
}  // namespace planq::linear_w8a8_dynamic

PLANQ_KERNELS(linear_w8a8_dynamic, cuda, kKernels);
