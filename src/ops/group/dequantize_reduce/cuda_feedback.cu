// dequantize_reduce with error feedback on CUDA.
#include "ops/group/dequantize_reduce/kernels.h"
#include "ops/group/dequantize_reduce/sums.cuh"
#include "ops/group/feedback.cuh"

namespace planq::dequantize_reduce {
namespace {

// Values that are sums over ranks.
template <bool kNibble>
struct Sums {
  static constexpr int kPer = cuda::kSummed;
  RankedCodes ranked;
  bool half = false;

  bool has_vectors(std::int64_t elements) const {
    return cuda::sums_vectors<kNibble>(ranked, elements);
  }
  __device__ __forceinline__ void vector(std::int64_t first, float (&sums)[kPer]) const {
    cuda::sum_vector<kNibble>(ranked, half, first, sums);
  }
  __device__ __forceinline__ float element(std::int64_t i) const {
    return cuda::sum_element<kNibble>(ranked, half, i);
  }
};

struct FeedbackCuda {
  static constexpr Backend kBackend = Backend::Cuda;
  static constexpr bool kFeedback = true;

  template <DType kIn, DType>
  static Status prepare(const Descriptor&, const Device&, State&) {
    return cuda::preload_with_errors<Sums<is_four_bit(kIn)>, is_four_bit(kIn)>();
  }
  template <DType kIn, DType>
  static Status bind(const Call& call, Bound& bound) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    GroupEncoding encoding{output_groups(f), f.shape, {}};
    encoding.feedback = {f, operands[kError]};
    auto args = cuda::feedback_args<Sums<is_four_bit(kIn)>>(encoding, operands[kOutput],
                                                            operands[kOutputParameters]);
    args.source.ranked = {input_groups(f), operands[kInput], operands[kParameters], f.ranks,
                          f.mean};
    args.source.half = sums_halves(f);
    return cuda::launch_with_errors<is_four_bit(kIn)>(args, call.device.multiprocessors, bound);
  }
  template <DType kIn, DType kOut>
  static constexpr auto kBind = bind<kIn, kOut>;
};

constexpr auto kFeedbackKernels = feedback_kernels<FeedbackCuda>();

}  // namespace
}  // namespace planq::dequantize_reduce

PLANQ_KERNELS(dequantize_reduce, cuda_feedback, kFeedbackKernels);
