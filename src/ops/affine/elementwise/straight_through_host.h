// Straight-through gradients on the host, chunk by chunk.
#pragma once

#include "ops/affine/elementwise/host.h"
#include "ops/affine/elementwise/straight_through.h"

namespace planq::host {

// Calls write(chunk, count, spec, grad_output, grad_input) for each chunk, whose bytes say which
// gradients pass.
template <class T, class Fields, class Write>
Status pass_straight_through(const Fields& f, const Operands& operands, const Stream& stream,
                             const Write& write) {
  using namespace straight_through;
  using C = math::Compute<T>;
  const math::AffineSpec<C> spec = spec_of<C>(f);
  const auto& loops = affine_loops<T>();
  const T* grad_output = static_cast<const T*>(operands[kGradOutput].data);
  const T* input = static_cast<const T*>(operands[kInput].data);
  T* grad_input = static_cast<T*>(operands[kGradInput].data);
  const bool asymmetric = f.mode == Mode::Asymmetric;
  const GivenOperands given = {operands[kScale].data,
                               asymmetric ? operands[kZeroPoint].data : nullptr, f.scale_dtype,
                               f.zero_point_dtype, NibbleOrder::LowFirst};
  for_each_chunk<C>(stream.threads, f.shape, f.scope, layout_of(f, operands), given, spec,
                    [&](Chunk<C>& s, const ChunkPlace& place, std::int64_t count) {
                      loops.widen(input + place.at.at[1], count, s.value);
                      loops.pass(s, count, spec);
                      write(s, count, spec, grad_output + place.at.at[0],
                            grad_input + place.at.at[2]);
                    });
  return Status::success();
}

}  // namespace planq::host
