// The CUDA kernels of MX and NVFP4, on a processor: see tests/support/emulated.
#include "cuda/memory_access.cuh"
#include "ops/affine/dynamic_range_quantize/cuda_formats.cu"

namespace {

using namespace planq;
using namespace planq::dynamic_range_quantize;

// As test_emulated_formats.py fills it. Tensors are matrices, with rows as far apart as it says, in
// elements of the input and the scales and in bytes of the codes.
struct Problem {
  std::int64_t rows, columns, input_stride, output_stride, scale_stride;
  const char *input_dtype, *output_dtype, *convention, *nibble_order;
  std::int64_t multiprocessors;
  void *input, *output, *scale, *inverse_tensor_scale;
};

template <class E>
E named(const char* name) {
  const auto& names = kNames<E>;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) std::abort();
  return static_cast<E>(found - names.begin());
}

OperandView view_of(void* data, std::int64_t stride) {
  OperandView view;
  view.data = data;
  view.strides = {stride, 1};
  return view;
}

const Kernel& kernel_for(const Fields& f) {
  const bool nvfp4 = f.convention == Convention::Nvfp4;
  for (const Kernel& kernel : kKernels)
    if (kernel.dtypes[0] == f.input_dtype && kernel.dtypes[1] == f.output_dtype &&
        (kernel.arithmetic == "nvfp4") == nvfp4)
      return kernel;
  std::abort();
}

}  // namespace

extern "C" void run(const Problem* p) {
  Descriptor descriptor;
  Fields& f = descriptor.as<Fields>();
  f.shape = {2, {p->rows, p->columns}};
  f.input_dtype = named<DType>(p->input_dtype);
  f.output_dtype = named<DType>(p->output_dtype);
  f.convention = named<Convention>(p->convention);
  f.nibble_order = named<NibbleOrder>(p->nibble_order);
  f.scope = {ScopeKind::Group, 1, f.convention == Convention::Nvfp4 ? 16 : 32};
  const OperandView views[] = {view_of(p->input, p->input_stride),
                               view_of(p->output, p->output_stride),
                               view_of(p->scale, p->scale_stride),
                               {},
                               view_of(p->inverse_tensor_scale, 1)};
  Device device;
  device.multiprocessors = static_cast<std::int32_t>(p->multiprocessors);
  const State state{};
  Bound bound;
  if (!kernel_for(f).bind({descriptor, device, state, Operands(views), {}}, bound).ok())
    std::abort();
}
