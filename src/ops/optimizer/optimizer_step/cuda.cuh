// optimizer_step on CUDA for one format of states, which a file names before it includes this:
//
//     #define PLANQ_STATE_FORMAT Blockwise8
#pragma once

#include <algorithm>
#include <limits>

#include "core/scratch.h"
#include "ops/optimizer/lists.h"
#include "ops/optimizer/optimizer_step/step.cuh"

namespace planq::optimizer_step {
namespace {

using cuda::Member;
using cuda::Pass;
using cuda::StepArgs;
using std::int64_t;

constexpr StateFormat kFormat = StateFormat::PLANQ_STATE_FORMAT;
constexpr bool kIsStatic = kFormat == StateFormat::Static8;
// Parts are numbered by 32 bits.
constexpr int64_t kMostElements = int64_t{1} << 40;

// ---- kernels by algorithm ----------------------------------------------------------------------

using PassKernel = void (*)(StepArgs);
constexpr int kAlgorithms = 8;

template <Pass kPass, OptimizerAlgorithm... kEach>
constexpr std::array<PassKernel, sizeof...(kEach)> make_kernels() {
  return {cuda::run_pass<kEach, kFormat, kPass>...};
}
template <Pass kPass>
PassKernel pass_kernel(OptimizerAlgorithm algorithm) {
  using enum OptimizerAlgorithm;
  static constexpr auto kKernels =
      make_kernels<kPass, Adam, AdEMAMix, Momentum, RmsProp, Adagrad, Lion, Lamb, Lars>();
  static_assert(kKernels.size() == kAlgorithms);
  return kKernels[static_cast<std::size_t>(algorithm)];
}

template <OptimizerAlgorithm... kEach>
constexpr std::array<int, sizeof...(kEach)> make_sizes() {
  return {static_cast<int>(sizeof(optimizer::cuda::Maps<kEach>))...};
}
int shared_bytes(OptimizerAlgorithm algorithm) {
  using enum OptimizerAlgorithm;
  constexpr auto kSizes =
      make_sizes<Adam, AdEMAMix, Momentum, RmsProp, Adagrad, Lion, Lamb, Lars>();
  return kFormat == StateFormat::Float32 ? 0 : kSizes[static_cast<std::size_t>(algorithm)];
}

// ---- once --------------------------------------------------------------------------------------

struct Prepared {
  optimizer::ListParts tiles, leaves;
  Rule rule;
  PassKernel update, norms, maxima;  // null: there is no such pass
  planq::cuda::Grid grid;            // of as many blocks as run at the same time
};

Status resident_blocks(const Prepared& prepared, const Device& device, int64_t& blocks) {
  int each = 0;
  const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &each, prepared.update, static_cast<int>(prepared.grid.threads.x),
      static_cast<std::size_t>(prepared.grid.shared_bytes));
  blocks = int64_t{std::max(each, 1)} * device.multiprocessors;
  return error == cudaSuccess ? Status::success() : Status::cuda(error);
}

Status prepare(const Descriptor& descriptor, const Device& device, State& state) {
  const Fields& f = descriptor.as<Fields>();
  auto& prepared = state.own<Prepared>();
  prepared.tiles = {f.shapes, cuda::kThreads<kFormat> * cuda::kEach};
  prepared.leaves = {f.shapes, math::kSumLeaf};
  prepared.rule = optimizer::rule_of(f);
  const OptimizerAlgorithm algorithm = prepared.rule.algorithm;
  prepared.grid.threads = dim3(static_cast<unsigned>(cuda::kThreads<kFormat>));
  prepared.grid.shared_bytes = shared_bytes(algorithm);
  prepared.update = pass_kernel<Pass::Update>(algorithm);
  if (prepared.rule.has_trust()) prepared.norms = pass_kernel<Pass::Norms>(algorithm);
  if constexpr (kIsStatic) prepared.maxima = pass_kernel<Pass::Maxima>(algorithm);
  for (const PassKernel kernel : {prepared.update, prepared.norms, prepared.maxima})
    if (kernel) PLANQ_TRY(planq::cuda::preload(kernel, prepared.grid.shared_bytes));
  PLANQ_TRY(resident_blocks(prepared, device, prepared.grid.blocks));
  return cuda::prepare_finish();
}

// ---- a call ------------------------------------------------------------------------------------

cuda::Memory book(const Fields& f, int64_t leaves, Scratch& scratch) {
  const bool has_trust = f.trust_ratio != TrustRatio::None;
  const auto sums = static_cast<std::size_t>(has_trust ? leaves : 0);
  const auto tensors = static_cast<std::size_t>(f.shapes.count);
  cuda::Memory memory{};
  memory.parameter_sums = scratch.take<float>(sums);
  memory.update_sums = scratch.take<float>(sums);
  memory.maxima = scratch.take<std::uint32_t>(kIsStatic ? kMostStates * tensors : 0);
  memory.trust = scratch.take<Trust>(has_trust ? tensors : 0);
  return memory;
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  int64_t leaves = 0;
  for (const Shape& shape : f.shapes)
    leaves += planq::cuda::ceil_div(shape.elements(), math::kSumLeaf);
  Scratch counting;
  book(f, leaves, counting);
  return counting.bytes();
}

// Whether every tensor begins where vectors of a lane's elements may.
bool is_aligned(const Fields& f, const Tensor& tensor) {
  const auto vectors = [](const void* data, DType dtype) {
    const int bytes = cuda::Layout<kFormat>::kSide * static_cast<int>(storage_bytes(dtype));
    return planq::cuda::aligned_to(data, std::min(bytes, planq::cuda::kVectorBytes));
  };
  const DType state = kFormat == StateFormat::Float32 ? DType::Float32 : DType::UInt8;
  bool aligned = vectors(tensor.parameter, f.parameter_dtype) &&
                 vectors(tensor.gradient, f.gradient_dtype) &&
                 vectors(tensor.master, DType::Float32);
  for (const void* data : tensor.states) aligned = aligned && vectors(data, state);
  return aligned;
}

DType plain_dtype(const Fields& f, const Rule& rule) {
  const bool plain = f.parameter_dtype == f.gradient_dtype && !f.master && !rule.skips_zeros &&
                     !rule.skips_nonfinite && !rule.clips && !rule.centered &&
                     f.rounding != Rounding::Stochastic;
  return plain ? f.parameter_dtype : DType::Unset;
}

// What is the same for all launches.
void fill(const Call& call, const Prepared& prepared, StepArgs& args) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  Scratch scratch(call.workspace);
  args.rule = prepared.rule;
  args.sources = sources_of(f, operands);
  args.reads = args.sources.in_memory();
  if (!args.reads) args.factors = optimizer::factors_of(args.rule, args.sources);
  args.memory = book(f, prepared.leaves.count(), scratch);
  args.seed = integer_of(operands[kSeed]);
  args.offset = integer_of(operands[kOffset]);
  for (int k = 0; k < kMostStates; ++k)
    args.codebooks[k] =
        static_cast<const float*>(operands[static_cast<std::size_t>(kCodebook + k)].data);
  args.parameter_dtype = f.parameter_dtype;
  args.gradient_dtype = f.gradient_dtype;
  args.draws = f.rounding == Rounding::Stochastic;
  args.plain = plain_dtype(f, prepared.rule);
  args.block_shift = std::countr_zero(static_cast<std::uint64_t>(f.block_size));
}

// The tensors from `first` on, as many as a launch takes.
void fill_members(const Call& call, const Prepared& prepared, int64_t first, StepArgs& args) {
  const Fields& f = call.fields<Fields>();
  const int64_t last = std::min(first + cuda::kMostMembers, f.shapes.count);
  args.first_member = static_cast<std::int32_t>(first);
  args.members = static_cast<std::int32_t>(last - first);
  args.tiles = static_cast<std::int32_t>(prepared.tiles.first(last) - prepared.tiles.first(first));
  for (int64_t i = first; i < last; ++i) {
    Member& member = args.member[i - first];
    member.tensor = tensor_of(call.operands, i);
    member.elements = prepared.tiles.elements(i);
    member.first_tile =
        static_cast<std::int32_t>(prepared.tiles.first(i) - prepared.tiles.first(first));
    member.first_leaf = static_cast<std::int32_t>(prepared.leaves.first(i));
    member.id = id_of(f, i);
    member.is_aligned = is_aligned(f, member.tensor);
  }
}

Status launch_pass(PassKernel kernel, const Prepared& prepared, const StepArgs& args,
                   Bound& bound) {
  if (!kernel || args.tiles == 0) return Status::success();
  planq::cuda::Grid grid = prepared.grid;
  grid.blocks = std::min<int64_t>(grid.blocks, args.tiles);
  return planq::cuda::launch(kernel, grid, args, bound);
}

Status launch_members(const Prepared& prepared, const StepArgs& args, Bound& bound) {
  PLANQ_TRY(launch_pass(prepared.norms, prepared, args, bound));
  if (prepared.norms) PLANQ_TRY(cuda::finish_norms(args, bound));
  PLANQ_TRY(launch_pass(prepared.maxima, prepared, args, bound));
  PLANQ_TRY(launch_pass(prepared.update, prepared, args, bound));
  if (prepared.maxima) PLANQ_TRY(cuda::store_maxima(args, bound));
  if (prepared.rule.algorithm == OptimizerAlgorithm::Lars)
    return cuda::tell_update_norms(args, bound);
  return Status::success();
}

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const auto& prepared = call.state.owned<Prepared>();
  StepArgs args{};
  fill(call, prepared, args);
  if (kIsStatic && f.shapes.count > 0) {
    const auto maxima = static_cast<std::size_t>(kMostStates * f.shapes.count);
    PLANQ_TRY(planq::cuda::clear(args.memory.maxima, maxima * sizeof(std::uint32_t), bound));
  }
  for (int64_t first = 0; first < f.shapes.count; first += cuda::kMostMembers) {
    fill_members(call, prepared, first, args);
    PLANQ_TRY(launch_members(prepared, args, bound));
  }
  if (!f.advance_step) return Status::success();
  auto* const step = static_cast<int64_t*>(call.operands[kStep].data);
  return cuda::count_step(args.sources, step, bound);
}

Reason rejects(const Descriptor& descriptor, const Device& device) {
  if (Reason reason = rejects_other_format<kFormat>(descriptor, device); !reason.accepted())
    return reason;
  int64_t left = kMostElements;
  for (const Shape& shape : descriptor.as<Fields>().shapes) {
    left -= std::min(left + 1, shape.elements());
    if (left < 0)
      return Reason::refuse(ReasonKind::Shape, "takes at most ", kMostElements, " elements");
  }
  return Reason::accept();
}

constexpr Kernel kKernels[] = {{
    .op = "optimizer_step",
    .variant = name_of(kFormat),
    .body = "tiles",
    .revision = 1,
    .backend = Backend::Cuda,
    .arch = {80},
    .rank = 0,
    .guarantee = kGuarantee,
    .rejects = rejects,
    .workspace = workspace,
    .prepare = prepare,
    .bind = bind,
}};

}  // namespace
}  // namespace planq::optimizer_step
