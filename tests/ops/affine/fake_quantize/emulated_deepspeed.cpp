// The CUDA kernels of DeepSpeed's convention, on a processor: see tests/support/emulated.
#include "ops/affine/fake_quantize/cuda_deepspeed.cu"

namespace {

using namespace planq;
using namespace planq::fake_quantize;

// As test_emulated_deepspeed.py fills it. Tensors are matrices, with rows as far apart as it says.
struct Problem {
  std::int64_t rows, columns, input_stride, output_stride, group_size, bits;
  double eps;
  const char *input_dtype, *mode;
  bool stochastic, draws_in_memory;
  void *input, *output;
  std::int64_t *seed, *offset;
};

template <class E>
E named(const char* name) {
  const auto& names = kNames<E>;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) std::abort();
  return static_cast<E>(found - names.begin());
}

using Bind = Status (*)(const Call&, Bound&);
template <bool kStochastic>
Bind bind_of(DType elements) {
  if (elements == DType::Float16) return Cuda::bind<math::Half, kStochastic>;
  if (elements == DType::BFloat16) return Cuda::bind<math::Bfloat16, kStochastic>;
  return Cuda::bind<float, kStochastic>;
}

OperandView view_of(void* data, std::int64_t stride = 1) {
  OperandView view;
  view.data = data;
  view.strides = {stride, 1};
  return view;
}
OperandView number_of(std::int64_t* value, bool in_memory) {
  OperandView view;
  if (in_memory)
    view.data = value;
  else
    view.value = *value;
  return view;
}

}  // namespace

extern "C" std::size_t workspace_size(std::int64_t elements, std::int64_t group_size) {
  Descriptor descriptor;
  descriptor.as<Fields>().shape = {1, {elements}};
  descriptor.as<Fields>().group_size = group_size;
  return Cuda::workspace(descriptor, {});
}

extern "C" void run(const Problem* p, void* workspace) {
  Descriptor descriptor;
  Fields& f = descriptor.as<Fields>();
  f.shape = {2, {p->rows, p->columns}};
  f.input_dtype = named<DType>(p->input_dtype);
  f.mode = named<Mode>(p->mode);
  f.group_size = p->group_size;
  f.bits = p->bits;
  f.eps = p->eps;
  const OperandView views[] = {
      view_of(p->input, p->input_stride),     view_of(p->output, p->output_stride),    {}, {},
      number_of(p->seed, p->draws_in_memory), number_of(p->offset, p->draws_in_memory)};
  Device device;
  device.multiprocessors = 1;
  const State state{};
  Bound bound;
  Workspace lent;
  lent.data = static_cast<std::byte*>(workspace);
  const Bind bind = p->stochastic ? bind_of<true>(f.input_dtype) : bind_of<false>(f.input_dtype);
  if (!bind({descriptor, device, state, Operands(views), lent}, bound).ok()) std::abort();
}
