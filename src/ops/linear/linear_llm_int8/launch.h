// From a call to the launches of a product's kernel, behind the one that lists what it reads beside
// the codes.
#pragma once

#include "cuda/launch.cuh"
#include "ops/linear/linear_llm_int8/desc.h"

namespace planq::linear_llm_int8 {

// What the launch needs beforehand.
Status preload_list();
// Adds the kernel that fills the room, where there is anything to list and to multiply.
Status launch_list(const Call& call, const Room& room, const linear::Gemm& gemm, Bound& bound);
// The same of the codes alone, for a product that has the operand's values, which is told of them.
Status launch_codes(const Call& call, linear::Gemm& gemm, Bound& bound);

inline std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch scratch;
  return Room(descriptor.as<Fields>(), scratch).bytes;
}

// What the kernel for every GPU does about TENSOR_SM90.
std::size_t chain_workspace(const Descriptor& descriptor, const Device& device);
Status preload_chain();
Status bind_chain(const Call& call, Bound& bound);

// On any GPU, by what that kernel has filled: any product, and those of few rows.
Status preload_sm80();
Status launch_sm80(const linear::Gemm& gemm, const Device& device, Bound& bound);
Status preload_few_rows();
Status launch_few_rows(const linear::Gemm& gemm, const Device& device, Bound& bound);

// On sm_90a, by the list itself and the operand's values, in the order of `accumulation`. Answers
// in `launched` whether the kernels take these operands; nothing is launched where not.
Status preload_sm90(Accumulation accumulation);
Status launch_sm90(const Call& call, const linear::Gemm& gemm, Accumulation accumulation,
                   Bound& bound, bool& launched);

template <Status (*kLaunch)(const linear::Gemm&, const Device&, Bound&)>
Status bind(const Call& call, Bound& bound) {
  Scratch scratch(call.workspace);
  const Room room(call.fields<Fields>(), scratch);
  const linear::Gemm gemm = gemm_of(call, room);
  PLANQ_TRY(launch_list(call, room, gemm, bound));
  return kLaunch(gemm, call.device, bound);
}

}  // namespace planq::linear_llm_int8
