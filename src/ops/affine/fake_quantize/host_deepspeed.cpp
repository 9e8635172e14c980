// fake_quantize on the host, by DeepSpeed's convention.
#include "host/bind.h"
#include "host/random.h"
#include "math/formats.h"
#include "ops/affine/fake_quantize/deepspeed.h"
#include "ops/group/group_host.h"

namespace planq::fake_quantize {
namespace {

struct Host {
  static constexpr Backend kBackend = Backend::Host;

  static std::size_t workspace(const Descriptor&, const Device&) { return 0; }
  template <DType, bool>
  static Status prepare(const Descriptor&, const Device&, State&) {
    return Status::success();
  }
  template <class T, bool kStochastic>
  static Status compute(const Call& call, const Stream& stream) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    host::FakeDraws draws;
    if (kStochastic) draws = {host::scalar_of(operands[kSeed]), host::scalar_of(operands[kOffset])};
    host::fake_groups<T>(f.shape, f.group_size, fake_spec(f), kStochastic ? &draws : nullptr,
                         operands[kInput], operands[kOutput], stream.threads);
    return Status::success();
  }
  template <DType kElements, bool kStochastic>
  static constexpr auto kBind = host::bind<compute<math::Stored<kElements>, kStochastic>>;
};

constexpr auto kKernels = deepspeed_kernels<Host>();

}  // namespace
}  // namespace planq::fake_quantize

PLANQ_KERNELS(fake_quantize, host_deepspeed, kKernels);
