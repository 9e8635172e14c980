// The CUDA kernels of groups, on a processor: see tests/support/emulated.
#include "cuda/launch.cuh"

#define PLANQ_ELEMENT Float32
#include "cuda/element.cuh"
#include "ops/group/group_dequantize/cuda.cuh"
#include "ops/group/group_quantize/cuda.cuh"

namespace {

using namespace planq;

// As test_emulated_groups.py fills it; what is not there is null. Tensors are flat.
struct Problem {
  std::int64_t elements, group_size;
  const char *input_dtype, *output_dtype, *mode, *convention;
  bool given;
  void *input, *output, *parameters, *scale, *minimum;
};

template <class E>
E named(const char* name) {
  const auto& names = kNames<E>;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) std::abort();
  return static_cast<E>(found - names.begin());
}

template <class Fields>
Fields fields_of(const Problem& problem) {
  Fields fields;
  fields.shape = {1, {problem.elements}};
  fields.input_dtype = named<DType>(problem.input_dtype);
  fields.output_dtype = named<DType>(problem.output_dtype);
  fields.group_size = problem.group_size;
  fields.mode = named<Mode>(problem.mode);
  fields.convention = named<Convention>(problem.convention);
  return fields;
}

using Bind = Status (*)(const Call&, Bound&);
template <class Kernels>
Bind bind_for(DType elements, bool nibbles) {
  if (elements == DType::Float16)
    return nibbles ? Kernels::template bind<math::Half, true>
                   : Kernels::template bind<math::Half, false>;
  if (elements == DType::BFloat16)
    return nibbles ? Kernels::template bind<math::Bfloat16, true>
                   : Kernels::template bind<math::Bfloat16, false>;
  return nibbles ? Kernels::template bind<float, true> : Kernels::template bind<float, false>;
}

template <class Fields>
void run(const Problem& problem, const Fields& fields, Bind bind) {
  OperandView views[5];
  void* const data[] = {problem.input, problem.output, problem.parameters, problem.scale,
                        problem.minimum};
  for (int i = 0; i < 5; ++i) {
    views[i].data = data[i];
    views[i].strides[0] = 1;
  }
  views[2].strides = {fields.mode == Mode::Asymmetric ? 2 : 1, 1};
  Descriptor descriptor;
  descriptor.as<Fields>() = fields;
  Device device;
  device.multiprocessors = 1;
  const State state{};
  Bound bound;
  if (!bind({descriptor, device, state, views, {}}, bound).ok()) std::abort();
}

}  // namespace

extern "C" void quantize(const Problem* problem) {
  auto fields = fields_of<group_quantize::Fields>(*problem);
  fields.parameters_given = problem->given;
  run(*problem, fields,
      bind_for<group_quantize::Kernels>(fields.input_dtype, is_four_bit(fields.output_dtype)));
}
extern "C" void dequantize(const Problem* problem) {
  const auto fields = fields_of<group_dequantize::Fields>(*problem);
  run(*problem, fields,
      bind_for<group_dequantize::Kernels>(fields.output_dtype, is_four_bit(fields.input_dtype)));
}
