// swizzled_quantize on the host.
#include "host/bind.h"
#include "ops/group/group_host.h"
#include "ops/group/group_kernels.h"
#include "ops/group/swizzled_quantize/desc.h"

namespace planq::swizzled_quantize {
namespace {

template <bool kWithFeedback>
struct Kernels {
  using Fields = swizzled_quantize::Fields;
  static constexpr std::string_view kName = "swizzled_quantize";
  static constexpr Backend kBackend = Backend::Host;
  static constexpr bool kToCodes = true;
  static constexpr bool kFeedback = kWithFeedback;
  static constexpr std::string_view kBasis =
      "exact maxima and minima; one rounding for each operation; no atomics";

  template <DType, bool>
  static Status prepare(const Descriptor&, const Device&, State&) {
    return Status::success();
  }
  template <class T>
  static Status compute(const Call& call, const Stream& stream) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    GroupEncoding encoding = encoding_of(f);
    if constexpr (kFeedback) encoding.feedback = {f, operands[kError]};
    host::encode_groups<T>(encoding, operands[kInput], operands[kOutput],
                           GroupMemory<T>(operands[kParameters], {}, {}), stream.threads);
    return Status::success();
  }
  template <DType kElements, bool>
  static constexpr auto kBind = host::bind<compute<math::Stored<kElements>>>;
};

constexpr auto kKernels =
    joined(all_group_code_kernels<Kernels<false>>(), all_group_code_kernels<Kernels<true>>());

}  // namespace
}  // namespace planq::swizzled_quantize

PLANQ_KERNELS(swizzled_quantize, host, kKernels);
