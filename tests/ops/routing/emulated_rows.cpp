// The CUDA kernels of the family, on a processor: see tests/support/emulated.
#include <vector>

#include "cuda/launch.cuh"
#include "cuda/prefix.cu"
#include "ops/routing/moe_permute/cuda.cu"
#define PLANQ_ELEMENT BFloat16
#include "ops/routing/moe_unpermute/cuda.cuh"

namespace {

using namespace planq;

// Operands in the order of the operator, as test_emulated_rows.py fills them; one that is not there
// has no data. All have outer strides of their own, in elements.
struct Given {
  void* data;
  std::int64_t strides[3];
  std::int32_t rank;
};

template <class Fields>
void run(const Fields& fields, const Given* given, std::size_t count,
         std::size_t (*workspace)(const Descriptor&, const Device&),
         Status (*bind)(const Call&, Bound&)) {
  std::vector<OperandView> views(count);
  for (std::size_t i = 0; i < count; ++i) {
    views[i].data = given[i].data;
    views[i].rank = given[i].rank;
    std::copy_n(given[i].strides, 3, views[i].strides.begin());
  }
  Descriptor descriptor;
  descriptor.as<Fields>() = fields;
  Device device;
  device.multiprocessors = 16;
  State state;
  std::vector<std::byte> memory(workspace(descriptor, device) + 1, std::byte{0xA5});
  Bound bound;
  if (!bind({descriptor, device, state, Operands(views), {memory.data(), memory.size()}}, bound)
           .ok())
    std::abort();
}

}  // namespace

extern "C" void permute(bool compared, std::int64_t tokens, std::int64_t width, int size,
                        std::int64_t top_k, std::int64_t experts, const Given* given) {
  moe_permute::Fields fields;
  fields.input_shape = {2, {tokens, width}};
  fields.input_dtype = size == 1 ? DType::Int8 : size == 2 ? DType::Float16 : DType::Float32;
  fields.top_k = top_k;
  fields.experts = experts;
  run(fields, given, std::size(moe_permute::kOperands),
      compared ? no_workspace : moe_permute::workspace,
      compared ? moe_permute::bind_compared : moe_permute::bind_counted);
}

extern "C" void unpermute(std::int64_t tokens, std::int64_t top_k, std::int64_t width,
                          int output_size, const Given* given) {
  moe_unpermute::Fields fields;
  fields.input_shape = {3, {tokens, top_k, width}};
  fields.input_dtype = DType::BFloat16;
  fields.output_dtype = output_size == 2 ? DType::BFloat16 : DType::Float32;
  run(fields, given, std::size(moe_unpermute::kOperands), no_workspace,
      output_size == 2 ? moe_unpermute::bind<DType::BFloat16>
                       : moe_unpermute::bind<DType::Float32>);
}
