// group_dequantize on the host.
#include "host/bind.h"
#include "math/formats.h"
#include "ops/group/group_dequantize/desc.h"
#include "ops/group/group_host.h"
#include "ops/group/group_kernels.h"

namespace planq::group_dequantize {
namespace {

struct Kernels {
  using Fields = group_dequantize::Fields;
  static constexpr std::string_view kName = "group_dequantize";
  static constexpr Backend kBackend = Backend::Host;
  static constexpr bool kToCodes = false;
  static constexpr std::string_view kBasis = "element by element; one rounding for each operation";

  template <DType, bool>
  static Status prepare(const Descriptor&, const Device&, State&) {
    return Status::success();
  }
  template <class T>
  static Status compute(const Call& call, const Stream& stream) {
    const Operands& operands = call.operands;
    const GroupMemory<T> parameters(operands[kParameters], operands[kScale], operands[kMinimum]);
    host::decode_groups<T>(grouping_of(call.fields<Fields>()), operands[kInput], operands[kOutput],
                           parameters, stream.threads);
    return Status::success();
  }
  template <DType kElements, bool>
  static constexpr auto kBind = host::bind<compute<math::Stored<kElements>>>;
};

constexpr auto kKernels =
    joined(group_kernels<Kernels, DType::Float16>(), group_kernels<Kernels, DType::BFloat16>(),
           group_kernels<Kernels, DType::Float32>());

}  // namespace
}  // namespace planq::group_dequantize

PLANQ_KERNELS(group_dequantize, host, kKernels);
