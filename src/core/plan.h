// A selected and prepared row: everything that run needs, immutable after construction, so that
// threads may share it.
#pragma once

#include <array>
#include <cstdint>

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
Status prepare(const Selection& selection, const Stream& stream, Plan& plan);

// Enqueues on the stream, with its device current for the duration of the call.
Status launch(const Plan& plan, const Operands& operands, Workspace workspace,
              const Stream& stream);

// Where an operand starts and ends in memory, in bytes. False for an operand without elements.
bool extent_of(const OperandSpec& spec, const OperandView& view, std::uintptr_t& first,
               std::uintptr_t& last);
// Whether two operands share no byte: their extents are apart, or they take different parts of the
// same pitch, as codes and scales do that lie row by row in one page.
bool disjoint(const OperandSpec& spec, const OperandView& view, const OperandSpec& other_spec,
              const OperandView& other);
// Whether two operands of one shape and type name the same memory, index by index.
bool is_same(const OperandSpec& spec, const OperandView& view, const OperandView& other);
// Whether two indices of the operand can name one element.
bool overlaps_itself(const OperandSpec& spec, const OperandView& view);

}  // namespace planq
