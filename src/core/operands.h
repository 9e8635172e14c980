// Operands: what a descriptor asks of them, and where they are in a call. The checks between the
// two are here, for Python, C and torch alike.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/api.h"
#include "core/descriptor.h"
#include "core/device.h"
#include "core/operand_table.h"

namespace planq {

struct ArgumentFailure;
struct Constraint;
struct Plan;

constexpr bool is_written(Role role) { return role != Role::Input; }

// --- Asked by a descriptor ---------------------------------------------------------------------

struct OperandSpec {
  Role role = Role::Input;
  OperandKind kind = OperandKind::Tensor;
  bool optional = false;       // the caller may leave it out: its view then has no data
  bool present = true;         // false: the descriptor says that there is no such operand
  DType dtype = DType::Unset;  // logical; memory holds storage_of(dtype)
  Shape shape;                 // of the storage; of a scalar ()
  ShapeList shapes;            // of a list
  std::int64_t member_block = kWholeMembers;
  int same_as = -1;  // an output that may take the place of this input, exactly
  // Which dim each axis is, by its place in the descriptor's extras, or a mark of core/rules.h.
  std::array<std::int8_t, kMaxRank> dims{-1, -1, -1, -1, -1, -1, -1, -1};

  Shape member_shape(std::int64_t member) const {
    const Shape& whole = shapes.data[member];
    if (member_block == kWholeMembers) return whole;
    if (member_block == kSingleMembers) return {1, {1}};
    const std::int64_t elements = whole.elements();
    return {1, {elements / member_block + (elements % member_block != 0)}};
  }
};

// --- Given in a call ---------------------------------------------------------------------------

enum class Memory : std::uint8_t { Host, Cuda, Managed, Other };

// Memory as its owner describes it, before it is compared with anything.
struct TensorView {
  void* data = nullptr;
  int ndim = 0;
  DType dtype = DType::Unset;  // Unset: a type that planq has no name for (see type_text)
  Memory memory = Memory::Host;
  int device = 0;
  bool readonly = false;
  bool copied = false;  // the producer made a copy for this export
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};  // in elements
  char type_text[24] = "";
};

// Where an operand is, as kernels see it. Strides count storage elements; the innermost is 1.
struct OperandView {
  void* data = nullptr;
  std::array<std::int64_t, kMaxRank> strides{};
  std::array<std::int64_t, kMaxRank> extents{};
  // Of a scalar that is not in memory; data is then null.
  union {
    std::int64_t value = 0;  // int64 and bool
    double real;             // float64
  };
  std::int32_t rank = 0;
  DType dtype = DType::Unset;            // what memory holds: a float64 scalar may be a float32
  const OperandView* members = nullptr;  // of a list, as many as its spec has shapes
};
using Operands = std::span<const OperandView>;

// The most that an operator may have.
inline constexpr int kMaxOperands = 48;
// The dims that a descriptor may have.
inline constexpr int kMaxDims = 4;

// The extents of a plan's dims in one call, and the operand that each was read from; -1: none yet.
struct Extents {
  std::array<std::int64_t, kMaxDims> at{-1, -1, -1, -1};
  std::array<std::int16_t, kMaxDims> operand{-1, -1, -1, -1};
};

// A tensor among the operands of a call, by the bytes that it lies between.
struct Occupied {
  std::uintptr_t first, last;
  const OperandView* view;
  std::int32_t member;
  std::int16_t index;
  bool written;
};

class CallOperands;
// Whether the operands go together: outputs share memory with nothing, not even with themselves,
// except that one may take the place of the input that its spec names.
bool accept_together(const Plan& plan, CallOperands& call, ArgumentFailure& failure)
    PLANQ_API(accept_together);

// The operands of one call, with room for whatever the plan's checks write: made with the plan, so
// that a call allocates nothing.
class CallOperands {
 public:
  explicit CallOperands(const Plan& plan) { make_room(plan); }

  Operands views() const { return views_; }
  OperandView& operator[](int index) { return views_[static_cast<std::size_t>(index)]; }
  // The members of a list, which are operands of the call from here on.
  OperandView* list(int index) PLANQ_API(list_members);
  // Where the first of them stands among the members of all lists.
  std::int64_t first_member(int index) const {
    return first_members_[static_cast<std::size_t>(index)];
  }
  std::size_t count_members() const { return members_.size(); }
  // Resets everything but the members of lists, which keep what the last call wrote.
  void clear() PLANQ_API(clear_operands);

  Extents extents;

 private:
  friend bool accept_together(const Plan& plan, CallOperands& call, ArgumentFailure& failure);
  void make_room(const Plan& plan) PLANQ_API(make_room);

  std::vector<OperandView> views_;
  std::vector<OperandView> members_;         // of one list after another
  std::vector<std::int64_t> first_members_;  // by operand; of plans with lists
  std::vector<Occupied> occupied_;
};

// What is wrong with an operand, in the words of ArgumentError. An empty operand: nothing is.
struct ArgumentFailure {
  std::string operand, expected, actual, advice;
};

// Whether the memory is what the plan expects of an operand, or of a member of a list; fills
// `operand` and `extents`, or `failure`.
bool accept(const Plan& plan, int index, const TensorView& view, OperandView& operand,
            Extents& extents, ArgumentFailure& failure, int member = -1) PLANQ_API(accept);
// Whether operands are what a kernel asks beyond their specs.
bool accept_constraints(const Plan& plan, std::span<const Constraint> constraints,
                        Operands operands, ArgumentFailure& failure) PLANQ_API(accept_constraints);

// What an operand has to be, in words: "shape (4096,) float32 on cuda:0".
std::string expected_text(const Plan& plan, int index, int member = -1) PLANQ_API(expected_text);
// The name of an operand, or of a member of a list: "gradient[3]".
std::string operand_name(const Plan& plan, int index, int member = -1) PLANQ_API(operand_name);
// "(4096, 8192) bfloat16 on cuda:0, strides (8192, 1)"
std::string describe(const TensorView& view, bool with_strides);
std::string shape_text(const std::int64_t* dims, int rank);
std::string device_text(const Device& device) PLANQ_API(device_text);
// Whether memory of this kind can be an operand on the device.
bool is_on(const TensorView& view, const Device& device) PLANQ_API(is_on);

// Why a workspace cannot be used; null: it can.
const char* workspace_problem(std::size_t needed, const Workspace& workspace, const Plan& plan,
                              Operands operands) PLANQ_API(workspace_problem);

}  // namespace planq
