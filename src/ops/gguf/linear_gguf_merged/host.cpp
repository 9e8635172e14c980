// linear_gguf_merged on the host: threads share the columns of all weights out together. Plans of
// linear_gguf come after that, and need no workspace for more than one type at a time.

#include <bit>

#include "host/bind.h"
#include "ops/gguf/linear_gguf_merged/desc.h"
#include "ops/gguf/products/host_products.h"

namespace planq::linear_gguf_merged {
namespace {

template <DType kOutputType>
Status compute(const Call& call, const Stream& stream) {
  const Products products(call);
  gguf::multiply(products.all(), stream.threads, call.workspace);
  return Status::success();
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  std::uint64_t types = 0;  // a bit each
  for (const std::int64_t type : f.types) types |= std::uint64_t{1} << type;
  return gguf::workspace_of_products(f.input_shape, std::popcount(types));
}

template <DType kOutputType>
constexpr Kernel kBlocks = gguf::kernel_of_codes<Fields, kOutputType, Backend::Host>(
    "linear_gguf_merged", "blocks", nothing_to_prepare, host::bind<compute<kOutputType>>,
    workspace);
template <DType kOutputType>
constexpr Kernel kPlans = kernel_of_plans<kOutputType, Backend::Host>();

constexpr Kernel kKernels[] = {kBlocks<DType::Float16>,      kBlocks<DType::BFloat16>,
                               kBlocks<DType::Float32>,      kPlans<DType::Float16>,
                               kPlans<DType::BFloat16>,      kPlans<DType::Float32>,
                               kKernelOfParts<Backend::Host>};

}  // namespace
}  // namespace planq::linear_gguf_merged

PLANQ_KERNELS(linear_gguf_merged, host, kKernels);
