// dequantize_reduce on the host.
#include "host/bind.h"
#include "ops/group/dequantize_reduce/kernels.h"
#include "ops/group/group_host.h"

namespace planq::dequantize_reduce {
namespace {

template <DType kOut>
Status compute(const Call& call, const Stream& stream) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const Grouping groups = input_groups(f);
  const RankedCodes ranked(groups, operands[kInput], operands[kParameters], f.ranks, f.mean);
  if constexpr (format_of(kOut).is_integer()) {
    const GroupMemory<float> parameters(operands[kOutputParameters], {}, {});
    host::requantize_sums(groups, ranked, sums_halves(f), output_groups(f), operands[kOutput],
                          parameters, stream.threads);
  } else {
    host::write_sums<math::Stored<kOut>>(groups, ranked, sums_halves(f), operands[kOutput],
                                         stream.threads);
  }
  return Status::success();
}

struct Host {
  static constexpr Backend kBackend = Backend::Host;
  template <DType, DType>
  static Status prepare(const Descriptor&, const Device&, State&) {
    return Status::success();
  }
  template <DType, DType kOut>
  static constexpr auto kBind = host::bind<compute<kOut>>;
};

constexpr auto kKernels =
    joined(kernels_from<Host, DType::Int8>(), kernels_from<Host, DType::Int4>());

}  // namespace
}  // namespace planq::dequantize_reduce

PLANQ_KERNELS(dequantize_reduce, host, kKernels);
