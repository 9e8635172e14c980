// linear_gguf_merged on CUDA: the launches of linear_gguf. Products with small weights are one, of
// one row of floats, too; others are one for each weight.

#include "ops/gguf/linear_gguf_merged/desc.h"
#include "ops/gguf/products/cuda_products.h"

namespace planq::linear_gguf_merged {
namespace {

Status prepare(const Descriptor& descriptor, const Device& device, State&) {
  const Fields& f = descriptor.as<Fields>();
  for (std::int64_t i = 0; i < f.types.count; ++i)
    if (const Status status = gguf::preload_products(f.types[i], device); !status.ok())
      return status;
  return Status::success();
}
Status bind(const Call& call, Bound& bound) {
  const Products products(call);
  return gguf::launch_products(products.all(), call.device, bound);
}

Status prepare_floats(const Descriptor& descriptor, const Device& device, State& state) {
  if (const Status status = gguf::preload_small_products_of_floats(); !status.ok()) return status;
  return gguf::prepare_parts(descriptor, descriptor.as<Fields>().input(), device, state);
}
Status bind_floats(const Call& call, Bound& bound) {
  const Products products(call);
  return gguf::are_small_of_floats(products.all())
             ? gguf::launch_small_products(products.all(), call.device, bound)
             : gguf::bind_parts(call, call.fields<Fields>().input(), bound);
}

template <DType kOutputType>
constexpr Kernel kProducts = kernel_of_products<kOutputType, Backend::Cuda>(prepare, bind);
constexpr Kernel kFloats =
    gguf::with_short_cut(kKernelOfParts<Backend::Cuda>, prepare_floats, bind_floats);

constexpr Kernel kKernels[] = {kProducts<DType::Float16>, kProducts<DType::BFloat16>,
                               kProducts<DType::Float32>, kFloats};

}  // namespace
}  // namespace planq::linear_gguf_merged

PLANQ_KERNELS(linear_gguf_merged, cuda, kKernels);
