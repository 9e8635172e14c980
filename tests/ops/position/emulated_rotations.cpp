// The CUDA kernels of the family, on a processor: see tests/support/emulated. PLANQ_ELEMENT is the
// type of the elements.
#include "cuda/launch.cuh"
#include "emulated/call.h"
#include "ops/position/rotary_embedding/cuda.cuh"

namespace {

using namespace planq;

// Types by number: 0 is none.
constexpr DType kTypes[] = {DType::Unset, DType::Float16, DType::BFloat16, DType::Float32};

}  // namespace

extern "C" void turn(const std::int64_t* extents, std::int64_t key_heads, std::int64_t rotary_dim,
                     std::int64_t max_position, bool interleaved, bool wide, int weights,
                     int multiprocessors, const emulated::Given* given) {
  rotary_embedding::Fields fields;
  fields.query_shape = {3, {extents[0], extents[1], extents[2]}};
  fields.key_heads = key_heads;
  fields.rotary_dim = rotary_dim;
  fields.max_position = max_position;
  fields.pairs = interleaved ? RotaryPairs::Interleaved : RotaryPairs::Neox;
  fields.dtype = cuda::kElement;
  fields.position_dtype = wide ? DType::Int64 : DType::Int32;
  fields.norm_weight_dtype = kTypes[weights];
  emulated::run(fields, given, std::size(rotary_embedding::kOperands), multiprocessors,
                rotary_embedding::bind);
}
