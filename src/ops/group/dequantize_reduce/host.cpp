// dequantize_reduce on the host.
#include "host/bind.h"
#include "ops/group/dequantize_reduce/kernels.h"
#include "ops/group/group_host.h"

namespace planq::dequantize_reduce {
namespace {

template <DType kOut, bool kFeedback>
Status compute(const Call& call, const Stream& stream) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const Grouping groups = input_groups(f);
  const RankedCodes ranked(groups, operands[kInput], operands[kParameters], f.ranks, f.mean);
  if constexpr (format_of(kOut).is_integer()) {
    const GroupMemory<float> parameters(operands[kOutputParameters], {}, {});
    const GroupFeedback feedback = kFeedback ? GroupFeedback(f, operands[kError]) : GroupFeedback();
    host::requantize_sums(groups, ranked, sums_halves(f), output_groups(f), operands[kOutput],
                          parameters, feedback, stream.threads);
  } else {
    host::write_sums<math::Stored<kOut>>(groups, ranked, sums_halves(f), operands[kOutput],
                                         stream.threads);
  }
  return Status::success();
}

template <bool kWithFeedback>
struct Host {
  static constexpr Backend kBackend = Backend::Host;
  static constexpr bool kFeedback = kWithFeedback;
  template <DType, DType>
  static Status prepare(const Descriptor&, const Device&, State&) {
    return Status::success();
  }
  template <DType, DType kOut>
  static constexpr auto kBind = host::bind<compute<kOut, kFeedback>>;
};

constexpr auto kKernels =
    joined(kernels_from<Host<false>, DType::Int8>(), kernels_from<Host<false>, DType::Int4>(),
           feedback_kernels<Host<true>>());

}  // namespace
}  // namespace planq::dequantize_reduce

PLANQ_KERNELS(dequantize_reduce, host, kKernels);
