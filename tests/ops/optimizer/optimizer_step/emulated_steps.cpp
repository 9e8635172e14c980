// The CUDA kernels of optimizer_step for one format of states, on a processor: see
// tests/support/emulated. The test names PLANQ_STATE_FORMAT.
#include "cuda/launch.cuh"
#include "ops/optimizer/optimizer_step/cuda.cuh"
#include "ops/optimizer/optimizer_step/finish.cu"

#include <vector>

namespace {

using namespace planq;

// As test_emulated_steps.py fills it. An operand that is a list has members, one a tensor, and a
// scalar its number; what is not there is null.
struct Given {
  void* data;
  void* const* members;
  double real;
  std::int64_t integer;
  bool is_real;
};
struct Problem {
  std::int64_t tensors, ids, block_size;
  const std::int64_t *elements, *tensor_ids;
  const char *algorithm, *parameter_dtype, *gradient_dtype, *weight_decay_mode, *trust_ratio,
      *nonfinite, *rounding;
  bool nesterov, centered, skip_zeros, master, advance_step;
  const Given* operands;
};

template <class E>
E named(const char* name) {
  const auto& names = kNames<E>;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) std::abort();
  return static_cast<E>(found - names.begin());
}

optimizer_step::Fields fields_of(const Problem& problem, const std::vector<Shape>& shapes) {
  optimizer_step::Fields fields;
  fields.shapes = {shapes.data(), problem.tensors};
  fields.algorithm = named<OptimizerAlgorithm>(problem.algorithm);
  fields.parameter_dtype = named<DType>(problem.parameter_dtype);
  fields.gradient_dtype = named<DType>(problem.gradient_dtype);
  fields.state_format = optimizer_step::kFormat;
  fields.block_size = problem.block_size;
  fields.weight_decay_mode = named<WeightDecayMode>(problem.weight_decay_mode);
  fields.trust_ratio = named<TrustRatio>(problem.trust_ratio);
  fields.nesterov = problem.nesterov;
  fields.centered = problem.centered;
  fields.skip_zeros = problem.skip_zeros;
  fields.nonfinite = named<NonFiniteGradient>(problem.nonfinite);
  fields.rounding = named<Rounding>(problem.rounding);
  fields.master = problem.master;
  fields.advance_step = problem.advance_step;
  fields.tensor_ids = {problem.tensor_ids, problem.ids};
  return fields;
}

OperandView view_of(const Given& given, std::vector<OperandView>& members, std::int64_t tensors) {
  OperandView view;
  view.data = given.data;
  view.value = given.integer;
  if (given.is_real) {
    view.real = given.real;
    view.dtype = DType::Float64;
  }
  if (!given.members) return view;
  members.resize(static_cast<std::size_t>(tensors));
  for (std::size_t i = 0; i < members.size(); ++i) members[i].data = given.members[i];
  view.members = members.data();
  return view;
}

}  // namespace

extern "C" void step(const Problem* problem) {
  std::vector<Shape> shapes(static_cast<std::size_t>(problem->tensors));
  for (std::size_t i = 0; i < shapes.size(); ++i) shapes[i] = {1, {problem->elements[i]}};
  constexpr std::size_t kCount = std::size(optimizer_step::kOperands);
  std::vector<OperandView> views(kCount), members[kCount];
  for (std::size_t i = 0; i < kCount; ++i)
    views[i] = view_of(problem->operands[i], members[i], problem->tensors);
  Descriptor descriptor;
  descriptor.as<optimizer_step::Fields>() = fields_of(*problem, shapes);
  Device device;
  device.multiprocessors = 1;
  State state;
  std::vector<std::byte> workspace(optimizer_step::workspace(descriptor, device) + 1);
  Bound bound;
  if (!optimizer_step::prepare(descriptor, device, state).ok() ||
      !optimizer_step::bind(
           {descriptor, device, state, Operands(views), {workspace.data(), workspace.size()}},
           bound)
           .ok())
    std::abort();
}
