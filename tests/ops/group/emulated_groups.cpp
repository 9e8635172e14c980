// The CUDA kernels of groups, on a processor: see tests/support/emulated.
#include "cuda/launch.cuh"

#define PLANQ_ELEMENT Float32
#include "cuda/element.cuh"
#include "ops/group/dequantize_reduce/cuda.cu"
#include "ops/group/encode.cuh"
#include "ops/group/group_dequantize/cuda.cuh"
#include "ops/group/group_quantize/cuda.cu"
#include "ops/group/swizzled_quantize/cuda.cu"

namespace {

using namespace planq;

// As test_emulated_groups.py fills it; what is not there is null. Tensors are flat.
struct Problem {
  std::int64_t elements, group_size;
  const char *input_dtype, *output_dtype, *mode, *convention;
  bool given;
  void *input, *output, *parameters, *scale, *minimum;
};

struct Reduction {
  std::int64_t elements, group_size, output_group_size, ranks, rank_bytes, rank_floats;
  const char *input_dtype, *output_dtype, *mode, *sum_dtype;
  bool mean;
  void *input, *parameters, *output, *output_parameters;
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
Bind encode_from(DType elements) {
  if (elements == DType::Float16) return Kernels::template bind<math::Half>;
  if (elements == DType::BFloat16) return Kernels::template bind<math::Bfloat16>;
  return Kernels::template bind<float>;
}
template <bool kNibble>
Bind decode_to(DType elements) {
  using group_dequantize::Kernels;
  if (elements == DType::Float16) return Kernels::bind<math::Half, kNibble>;
  if (elements == DType::BFloat16) return Kernels::bind<math::Bfloat16, kNibble>;
  return Kernels::bind<float, kNibble>;
}

template <class Fields>
void run(const Fields& fields, Operands views, Bind bind) {
  Descriptor descriptor;
  descriptor.as<Fields>() = fields;
  Device device;
  device.multiprocessors = 1;
  const State state{};
  Bound bound;
  if (!bind({descriptor, device, state, views, {}}, bound).ok()) std::abort();
}

OperandView view_of(void* data, std::int64_t stride = 1, std::int64_t next = 1) {
  OperandView view;
  view.data = data;
  view.strides = {stride, next, 1};
  return view;
}

template <class Fields>
void run(const Problem& problem, const Fields& fields, Bind bind) {
  const OperandView views[] = {view_of(problem.input), view_of(problem.output),
                               view_of(problem.parameters, fields.mode == Mode::Asymmetric ? 2 : 1),
                               view_of(problem.scale), view_of(problem.minimum)};
  run(fields, Operands(views), bind);
}

template <DType kIn>
Bind reduce_from(DType output) {
  if (output == DType::Float16) return dequantize_reduce::bind<kIn, DType::Float16>;
  if (output == DType::BFloat16) return dequantize_reduce::bind<kIn, DType::BFloat16>;
  if (output == DType::Float32) return dequantize_reduce::bind<kIn, DType::Float32>;
  return dequantize_reduce::bind<kIn, kIn>;
}

}  // namespace

extern "C" void quantize(const Problem* problem) {
  auto fields = fields_of<group_quantize::Fields>(*problem);
  fields.parameters_given = problem->given;
  run(*problem, fields, encode_from<group_quantize::Kernels>(fields.input_dtype));
}
extern "C" void dequantize(const Problem* problem) {
  const auto fields = fields_of<group_dequantize::Fields>(*problem);
  run(*problem, fields,
      is_four_bit(fields.input_dtype) ? decode_to<true>(fields.output_dtype)
                                      : decode_to<false>(fields.output_dtype));
}
extern "C" void swizzle(const Problem* problem, std::int64_t nodes, std::int64_t devices,
                        std::int64_t slices) {
  swizzled_quantize::Fields fields;
  fields.shape = {1, {problem->elements}};
  fields.input_dtype = named<DType>(problem->input_dtype);
  fields.output_dtype = named<DType>(problem->output_dtype);
  fields.group_size = problem->group_size;
  fields.mode = named<Mode>(problem->mode);
  fields.nodes = nodes;
  fields.devices_per_node = devices;
  fields.pipelining = slices;
  run(*problem, fields, encode_from<swizzled_quantize::Kernels>(fields.input_dtype));
}
extern "C" void reduce(const Reduction* r) {
  dequantize_reduce::Fields fields;
  fields.shape = {1, {r->elements}};
  fields.ranks = r->ranks;
  fields.input_dtype = named<DType>(r->input_dtype);
  fields.output_dtype = named<DType>(r->output_dtype);
  fields.group_size = r->group_size;
  fields.output_group_size = r->output_group_size;
  fields.mode = named<Mode>(r->mode);
  fields.mean = r->mean;
  fields.sum_dtype = named<DType>(r->sum_dtype);
  const std::int64_t columns = fields.mode == Mode::Asymmetric ? 2 : 1;
  const OperandView views[] = {view_of(r->input, r->rank_bytes),
                               view_of(r->parameters, r->rank_floats, columns), view_of(r->output),
                               view_of(r->output_parameters, columns)};
  run(fields, Operands(views),
      fields.input_dtype == DType::Int4 ? reduce_from<DType::Int4>(fields.output_dtype)
                                        : reduce_from<DType::Int8>(fields.output_dtype));
}
