// group_quantize on the host.
#include "host/bind.h"
#include "math/formats.h"
#include "ops/group/group_host.h"
#include "ops/group/group_kernels.h"
#include "ops/group/group_quantize/desc.h"

namespace planq::group_quantize {
namespace {

struct Kernels {
  using Fields = group_quantize::Fields;
  static constexpr std::string_view kName = "group_quantize";
  static constexpr Backend kBackend = Backend::Host;
  static constexpr bool kToCodes = true;
  static constexpr std::string_view kBasis =
      "exact maxima and minima; one rounding for each operation";

  template <DType, bool>
  static Status prepare(const Descriptor&, const Device&, State&) {
    return Status::success();
  }
  template <class T>
  static Status compute(const Call& call, const Stream& stream) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    const GroupMemory<T> parameters(operands[kParameters], operands[kScale], operands[kMinimum]);
    host::encode_groups<T>({grouping_of(f), f.shape, {}, !f.parameters_given}, operands[kInput],
                           operands[kOutput], parameters, stream.threads);
    return Status::success();
  }
  template <DType kElements, bool>
  static constexpr auto kBind = host::bind<compute<math::Stored<kElements>>>;
};

constexpr auto kKernels =
    joined(group_kernels<Kernels, DType::Float16>(), group_kernels<Kernels, DType::BFloat16>(),
           group_kernels<Kernels, DType::Float32>());

}  // namespace
}  // namespace planq::group_quantize

PLANQ_KERNELS(group_quantize, host, kKernels);
