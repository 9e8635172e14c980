// linear_gguf_merged on the host: threads share the columns of all weights out together. Plans of
// linear_gguf come after that, and need no workspace for more than one type at a time.

#include <bit>

#include "host/bind.h"
#include "ops/gguf/linear_gguf_merged/desc.h"
#include "ops/gguf/products/host_products.h"

namespace planq::linear_gguf_merged {
namespace {

static_assert(kMost <= gguf::kMostProducts);

template <DType kOutputType>
Status compute(const Call& call, const Stream& stream) {
  const Fields& f = call.fields<Fields>();
  gguf::Product products[kMost];
  for_each_weight(call, [&](std::int64_t i, const Own& own) {
    products[i] = {f.types[i],
                   linear::make_gemm(
                       f.input(), {f.numbers(i), DType::UInt8},
                       {.input = &call.operands[kInput],
                        .weight = &own.weight,
                        .output = &own.output,
                        .input_scale = &call.operands[kInputScale],
                        .bias = f.bias_dtype == DType::Unset ? nullptr : &own.bias,
                        .residual = f.residual_dtype == DType::Unset ? nullptr : &own.residual})};
    return Status::success();
  });
  gguf::multiply({products, static_cast<std::size_t>(f.types.count)}, stream.threads,
                 call.workspace);
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
constexpr Kernel kProducts = kernel_of_products<kOutputType, Backend::Host>();

constexpr Kernel kKernels[] = {kBlocks<DType::Float16>,      kBlocks<DType::BFloat16>,
                               kBlocks<DType::Float32>,      kProducts<DType::Float16>,
                               kProducts<DType::BFloat16>,   kProducts<DType::Float32>,
                               kKernelOfParts<Backend::Host>};

}  // namespace
}  // namespace planq::linear_gguf_merged

PLANQ_KERNELS(linear_gguf_merged, host, kKernels);
