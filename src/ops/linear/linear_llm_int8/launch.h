// From a call to launches: the kernel that gathers what is read for outliers, then the kernel of
// the gemm.
#pragma once

#include "cuda/launch.cuh"
#include "ops/linear/linear_llm_int8/desc.h"
#include "ops/linear/sm90/bodies.h"

namespace planq::linear_llm_int8 {

// Loads the kernel that gathers.
Status preload_gather();
// Launches the kernel that fills the room, if there is anything to gather and to multiply.
Status launch_gather(const Call& call, const Room& room, const linear::Gemm& gemm, Bound& bound);
// The same for codes alone, of a gemm that reads the values of the operand. Writes to `gemm` where
// the codes are.
Status launch_gather_codes(const Call& call, linear::Gemm& gemm, Bound& bound);

inline std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch scratch;
  return Room(descriptor.as<Fields>(), scratch).bytes;
}

// The kernel for every GPU, in the order of TENSOR_SM90 (cuda_chain.cu).
std::size_t chain_workspace(const Descriptor& descriptor, const Device& device);
Status preload_chain();
Status bind_chain(const Call& call, Bound& bound);

// The kernels of sm80, which read what was gathered to the room: for any gemm, and for few rows.
Status preload_sm80();
Status launch_sm80(const linear::Gemm& gemm, const Device& device, Bound& bound);
Status preload_few_rows();
Status launch_few_rows(const linear::Gemm& gemm, const Device& device, Bound& bound);

// The kernels of sm_90a, which read the list and the operand's values, in the order of
// `accumulation`. Sets `launched` to false, and launches nothing, if they do not take the operands.
Status preload_sm90(Accumulation accumulation);
Status launch_sm90(const Call& call, const linear::Gemm& gemm, Accumulation accumulation,
                   linear::sm90::Body body, Bound& bound, bool& launched);

template <Status (*kLaunch)(const linear::Gemm&, const Device&, Bound&)>
Status bind(const Call& call, Bound& bound) {
  Scratch scratch(call.workspace);
  const Room room(call.fields<Fields>(), scratch);
  const linear::Gemm gemm = gemm_of(call, room);
  PLANQ_TRY(launch_gather(call, room, gemm, bound));
  return kLaunch(gemm, call.device, bound);
}

}  // namespace planq::linear_llm_int8
