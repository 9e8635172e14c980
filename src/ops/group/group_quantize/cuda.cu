// group_quantize on CUDA.
#include "cuda/launch.cuh"
#include "ops/group/group_cuda.h"
#include "ops/group/group_kernels.h"
#include "ops/group/group_quantize/desc.h"

namespace planq::group_quantize {
namespace {

struct Kernels {
  using Fields = group_quantize::Fields;
  static constexpr std::string_view kName = "group_quantize";
  static constexpr Backend kBackend = Backend::Cuda;
  static constexpr bool kToCodes = true;
  static constexpr std::string_view kBasis =
      "exact maxima and minima; one rounding for each operation; no atomics";

  template <DType kElements, bool>
  static Status prepare(const Descriptor& descriptor, const Device&, State&) {
    return cuda::preload_groups<math::Stored<kElements>>(grouping_of(descriptor.as<Fields>()));
  }
  template <class T>
  static Status bind(const Call& call, Bound& bound) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    const GroupMemory<T> parameters(operands[kParameters], operands[kScale], operands[kMinimum]);
    return cuda::encode_groups<T>({grouping_of(f), f.shape, {}, !f.parameters_given},
                                  operands[kInput], operands[kOutput], parameters,
                                  call.device.multiprocessors, bound);
  }
  template <DType kElements, bool>
  static constexpr auto kBind = bind<math::Stored<kElements>>;
};

constexpr auto kKernels =
    joined(group_kernels<Kernels, DType::Float16>(), group_kernels<Kernels, DType::BFloat16>(),
           group_kernels<Kernels, DType::Float32>());

}  // namespace
}  // namespace planq::group_quantize

PLANQ_KERNELS(group_quantize, cuda, kKernels);
