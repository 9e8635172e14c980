// fake_quantize on CUDA, by DeepSpeed's convention.
#include "core/scratch.h"
#include "ops/affine/fake_quantize/deepspeed.h"
#include "ops/group/fake.cuh"

namespace planq::fake_quantize {
namespace {

math::GroupRange* take_ranges(const FakeGroups& groups, Scratch& scratch) {
  return scratch.take<math::GroupRange>(static_cast<std::size_t>(groups.kept_ranges()));
}

struct Cuda {
  static constexpr Backend kBackend = Backend::Cuda;

  static std::size_t workspace(const Descriptor& descriptor, const Device&) {
    Scratch scratch;
    take_ranges(fake_groups(descriptor.as<Fields>()), scratch);
    return scratch.bytes();
  }
  template <DType kElements, bool kStochastic>
  static Status prepare(const Descriptor&, const Device&, State&) {
    return cuda::preload_fake<math::Stored<kElements>, kStochastic>();
  }
  template <class T, bool kStochastic>
  static Status bind(const Call& call, Bound& bound) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    Scratch scratch(call.workspace);
    cuda::FakeArgs<T> args{};
    args.input = static_cast<const T*>(operands[kInput].data);
    args.output = static_cast<T*>(operands[kOutput].data);
    args.input_places = {f.shape, operands[kInput]};
    args.output_places = {f.shape, operands[kOutput]};
    args.groups = fake_groups(f);
    args.ranges = take_ranges(args.groups, scratch);
    args.spec = fake_spec(f);
    if (kStochastic) {
      args.seed = integer_of(operands[kSeed]);
      args.offset = integer_of(operands[kOffset]);
    }
    return cuda::launch_fake<T, kStochastic>(args, call.device.multiprocessors, bound);
  }
  template <DType kElements, bool kStochastic>
  static constexpr auto kBind = bind<math::Stored<kElements>, kStochastic>;
};

constexpr auto kKernels = deepspeed_kernels<Cuda>();

}  // namespace
}  // namespace planq::fake_quantize

PLANQ_KERNELS(fake_quantize, cuda_deepspeed, kKernels);
