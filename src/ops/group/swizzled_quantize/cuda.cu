// swizzled_quantize on CUDA.
#include "cuda/launch.cuh"
#include "ops/group/group_cuda.h"
#include "ops/group/group_kernels.h"
#include "ops/group/swizzled_quantize/desc.h"

namespace planq::swizzled_quantize {
namespace {

struct Kernels {
  using Fields = swizzled_quantize::Fields;
  static constexpr std::string_view kName = "swizzled_quantize";
  static constexpr Backend kBackend = Backend::Cuda;
  static constexpr bool kToCodes = true;
  static constexpr bool kFeedback = false;
  static constexpr std::string_view kBasis =
      "exact maxima and minima; one rounding for each operation; no atomics";

  template <DType kElements, bool>
  static Status prepare(const Descriptor& descriptor, const Device&, State&) {
    return cuda::preload_groups<math::Stored<kElements>>(grouping_of(descriptor.as<Fields>()));
  }
  template <class T>
  static Status bind(const Call& call, Bound& bound) {
    const Operands& operands = call.operands;
    return cuda::encode_groups<T>(encoding_of(call.fields<Fields>()), operands[kInput],
                                  operands[kOutput], GroupMemory<T>(operands[kParameters], {}, {}),
                                  call.device.multiprocessors, bound);
  }
  template <DType kElements, bool>
  static constexpr auto kBind = bind<math::Stored<kElements>>;
};

constexpr auto kKernels = all_group_code_kernels<Kernels>();

}  // namespace
}  // namespace planq::swizzled_quantize

PLANQ_KERNELS(swizzled_quantize, cuda, kKernels);
