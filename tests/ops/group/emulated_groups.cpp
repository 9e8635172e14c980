// The CUDA kernels of groups, on a processor: see tests/support/emulated.
#include "cuda/launch.cuh"

#define PLANQ_ELEMENT Float32
#include "cuda/element.cuh"

// Two files of an operator have a table each, which nothing here reads.
#undef PLANQ_KERNELS
#define PLANQ_KERNELS(operator_name, file, kernels)

#include "ops/group/dequantize_reduce/cuda.cu"
#include "ops/group/dequantize_reduce/cuda_feedback.cu"
#include "ops/group/encode.cuh"
#include "ops/group/group_dequantize/cuda.cuh"
#include "ops/group/group_quantize/cuda.cu"
#include "ops/group/swizzled_quantize/cuda.cu"
#include "ops/group/swizzled_quantize/cuda_feedback.cu"

namespace {

using namespace planq;

// As test_emulated_groups.py fills it; what is not there is null. Tensors are flat.
struct Problem {
  std::int64_t elements, group_size;
  const char *input_dtype, *output_dtype, *mode, *convention;
  bool given;
  void *input, *output, *parameters, *scale, *minimum;
};

// Of what has error feedback; else there is none of it.
struct Feedback {
  double beta;
  const char *error_dtype, *sum_dtype;
  void* error;
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

template <bool kNibble>
Bind encode_with_errors(DType elements) {
  using swizzled_quantize::FeedbackKernels;
  if (elements == DType::Float16) return FeedbackKernels::bind<math::Half, kNibble>;
  if (elements == DType::BFloat16) return FeedbackKernels::bind<math::Bfloat16, kNibble>;
  return FeedbackKernels::bind<float, kNibble>;
}
Bind swizzled_from(const swizzled_quantize::Fields& fields) {
  if (!has_feedback(fields)) return encode_from<swizzled_quantize::Kernels>(fields.input_dtype);
  return is_four_bit(fields.output_dtype) ? encode_with_errors<true>(fields.input_dtype)
                                          : encode_with_errors<false>(fields.input_dtype);
}

template <DType kIn>
Bind reduce_from(DType output) {
  if (output == DType::Float16) return dequantize_reduce::bind<kIn, DType::Float16>;
  if (output == DType::BFloat16) return dequantize_reduce::bind<kIn, DType::BFloat16>;
  if (output == DType::Float32) return dequantize_reduce::bind<kIn, DType::Float32>;
  return dequantize_reduce::bind<kIn, kIn>;
}
Bind reduced_by(const dequantize_reduce::Fields& fields) {
  using dequantize_reduce::FeedbackCuda;
  const bool nibble = fields.input_dtype == DType::Int4;
  if (has_feedback(fields))
    return nibble ? FeedbackCuda::bind<DType::Int4, DType::Int4>
                  : FeedbackCuda::bind<DType::Int8, DType::Int8>;
  return nibble ? reduce_from<DType::Int4>(fields.output_dtype)
                : reduce_from<DType::Int8>(fields.output_dtype);
}

template <class Fields>
void add_feedback(Fields& fields, const Feedback* feedback) {
  if (feedback == nullptr) return;
  fields.error_feedback = feedback->beta;
  fields.error_dtype = named<DType>(feedback->error_dtype);
  fields.sum_dtype = named<DType>(feedback->sum_dtype);
}
OperandView errors_of(const Feedback* feedback) {
  return feedback == nullptr ? OperandView{} : view_of(feedback->error);
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
extern "C" void swizzle(const Problem* problem, const Feedback* feedback, std::int64_t nodes,
                        std::int64_t devices, std::int64_t slices) {
  swizzled_quantize::Fields fields;
  fields.shape = {1, {problem->elements}};
  fields.input_dtype = named<DType>(problem->input_dtype);
  fields.output_dtype = named<DType>(problem->output_dtype);
  fields.group_size = problem->group_size;
  fields.mode = named<Mode>(problem->mode);
  fields.nodes = nodes;
  fields.devices_per_node = devices;
  fields.pipelining = slices;
  add_feedback(fields, feedback);
  const OperandView views[] = {
      view_of(problem->input), view_of(problem->output),
      view_of(problem->parameters, fields.mode == Mode::Asymmetric ? 2 : 1), errors_of(feedback)};
  run(fields, Operands(views), swizzled_from(fields));
}
extern "C" void reduce(const Reduction* r, const Feedback* feedback) {
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
  add_feedback(fields, feedback);
  const std::int64_t columns = fields.mode == Mode::Asymmetric ? 2 : 1;
  const OperandView views[] = {view_of(r->input, r->rank_bytes),
                               view_of(r->parameters, r->rank_floats, columns), view_of(r->output),
                               view_of(r->output_parameters, columns), errors_of(feedback)};
  run(fields, Operands(views), reduced_by(fields));
}
