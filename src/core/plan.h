// A selected and prepared row: everything that run needs, immutable after construction, so that
// threads may share it.
#pragma once

#include <array>
#include <cstdint>

#include "core/api.h"
#include "core/select.h"

namespace planq {

struct Plan {
  Descriptor descriptor;
  Preference preference;
  Device device;
  const Kernel* kernel = nullptr;
  std::size_t workspace = 0;
  int operand_count = 0;
  std::array<OperandSpec, kMaxOperands> specs{};
  State state;
};

// Fills the rest of a plan whose descriptor, preference and device are set, from its selection.
PLANQ_API Status prepare(const Selection& selection, const Stream& stream, Plan& plan);

// Enqueues on the stream, with its device current for the duration of the call.
PLANQ_API Status launch(const Plan& plan, const Operands& operands, Workspace workspace,
                        const Stream& stream);

// Where an operand starts and ends in memory, in bytes: nowhere if it has no elements.
struct MemorySpan {
  std::uintptr_t first = 0, last = 0;

  bool meets(const MemorySpan& other) const { return first < other.last && other.first < last; }
};
PLANQ_API MemorySpan span_of(const OperandSpec& spec, const OperandView& view);
// Whether two operands whose spans meet share no byte all the same: they take different parts of
// one pitch, as codes and scales do that lie row by row in one page.
PLANQ_API bool interleaved(const OperandSpec& spec, const OperandView& view,
                           const OperandSpec& other_spec, const OperandView& other);
// Whether two operands of one shape and type name the same memory, index by index.
PLANQ_API bool is_same(const OperandSpec& spec, const OperandView& view, const OperandView& other);
// Whether two indices of the operand can name one element.
PLANQ_API bool overlaps_itself(const OperandSpec& spec, const OperandView& view);

}  // namespace planq
