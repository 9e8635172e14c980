// swizzled_quantize with error feedback on CUDA.
#include "ops/group/feedback.cuh"
#include "ops/group/group_kernels.h"
#include "ops/group/swizzled_quantize/desc.h"

namespace planq::swizzled_quantize {
namespace {

// Values that are elements.
template <class T>
struct Elements {
  static constexpr int kPer = cuda::kGroupVector<T>;
  const T* data = nullptr;
  cuda::ElementPlaces places;

  bool has_vectors(std::int64_t) const {
    return places.consecutive() && cuda::aligned_to(data, cuda::kVectorBytes);
  }
  __device__ __forceinline__ void vector(std::int64_t first, float (&values)[kPer]) const {
    cuda::widen_group_vector<T>(cuda::load_once(data + first), values);
  }
  __device__ __forceinline__ float element(std::int64_t i) const {
    return math::widened(data[places[i]]);
  }
};

struct FeedbackKernels {
  using Fields = swizzled_quantize::Fields;
  static constexpr std::string_view kName = "swizzled_quantize";
  static constexpr Backend kBackend = Backend::Cuda;
  static constexpr bool kToCodes = true;
  static constexpr bool kFeedback = true;
  static constexpr std::string_view kBasis =
      "exact maxima and minima; one rounding for each operation; no atomics";

  template <DType kElements, bool kNibble>
  static Status prepare(const Descriptor&, const Device&, State&) {
    return cuda::preload_with_errors<Elements<math::Stored<kElements>>, kNibble>();
  }
  template <class T, bool kNibble>
  static Status bind(const Call& call, Bound& bound) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    GroupEncoding encoding = encoding_of(f);
    encoding.feedback = {f, operands[kError]};
    auto args =
        cuda::feedback_args<Elements<T>>(encoding, operands[kOutput], operands[kParameters]);
    args.source = {static_cast<const T*>(operands[kInput].data), {f.shape, operands[kInput]}};
    return cuda::launch_with_errors<kNibble>(args, call.device.multiprocessors, bound);
  }
  template <DType kElements, bool kNibble>
  static constexpr auto kBind = bind<math::Stored<kElements>, kNibble>;
};

constexpr auto kFeedbackKernels = all_group_code_kernels<FeedbackKernels>();

}  // namespace
}  // namespace planq::swizzled_quantize

PLANQ_KERNELS(swizzled_quantize, cuda_feedback, kFeedbackKernels);
