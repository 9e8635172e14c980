#include "core/operands.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/plan.h"

namespace planq {
namespace {

// --- Where operands are -------------------------------------------------------------------------

// Where an operand starts and ends in memory, in bytes: nowhere if it has no elements.
struct MemorySpan {
  std::uintptr_t first = 0, last = 0;

  bool meets(const MemorySpan& other) const { return first < other.last && other.first < last; }
};

MemorySpan span_of(const OperandView& view) {
  if (!view.data) return {};
  const std::int64_t size = storage_bytes(view.dtype);
  std::int64_t below = 0, above = size;
  for (int axis = 0; axis < view.rank; ++axis) {
    const std::int64_t extent = view.extents[axis];
    if (extent == 0) return {};
    const std::int64_t reach = (extent - 1) * view.strides[axis] * size;
    (reach < 0 ? below : above) += reach;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(view.data);
  return {base + static_cast<std::uintptr_t>(below), base + static_cast<std::uintptr_t>(above)};
}

// The slowest axis in bytes, and the bytes that the other axes span before and after the base.
struct Pitch {
  std::int64_t stride = 0, below = 0, above = 0;
};

Pitch pitch_of(const OperandView& view) {
  const std::int64_t size = storage_bytes(view.dtype);
  Pitch pitch{0, 0, size};
  int slowest = -1;
  for (int axis = 0; axis < view.rank; ++axis) {
    if (view.extents[axis] <= 1) continue;
    const std::int64_t stride = std::abs(view.strides[axis]) * size;
    if (stride > pitch.stride) {
      pitch.stride = stride;
      slowest = axis;
    }
  }
  for (int axis = 0; axis < view.rank; ++axis) {
    if (axis == slowest) continue;
    const std::int64_t reach = (view.extents[axis] - 1) * view.strides[axis] * size;
    (reach < 0 ? pitch.below : pitch.above) += reach;
  }
  return pitch;
}

// Whether two operands whose spans meet share no byte all the same: they take different parts of
// one pitch, as codes and scales do that lie row by row in one page.
bool interleaved(const OperandView& view, const OperandView& other) {
  const Pitch a = pitch_of(view), b = pitch_of(other);
  if (a.stride == 0 || a.stride != b.stride) return false;
  // Both repeat every `stride` bytes; the first of b's bytes has to follow a's last, and b's last
  // has to come before a begins again.
  const auto start =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data)) + a.below;
  const auto other_start =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(other.data)) + b.below;
  const std::int64_t gap = ((other_start - start) % a.stride + a.stride) % a.stride;
  return gap >= a.above - a.below && gap + b.above - b.below <= a.stride;
}

// Whether two operands of one shape name the same memory, index by index: elements of one size do.
bool is_same(const OperandView& view, const OperandView& other) {
  bool same = view.data == other.data && bits_of(view.dtype) == bits_of(other.dtype);
  for (int axis = 0; same && axis < view.rank; ++axis)
    same = view.extents[axis] == 1 || view.strides[axis] == other.strides[axis];
  return same;
}

// Whether the elements follow one another without a gap, as they do most of the time.
bool is_dense(const std::int64_t* extents, const std::int64_t* strides, int rank) {
  std::int64_t dense = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    if (extents[axis] != 1 && strides[axis] != dense) return false;
    dense *= extents[axis];
  }
  return true;
}
bool is_dense(const OperandView& view) {
  return is_dense(view.extents.data(), view.strides.data(), view.rank);
}

// Whether two indices of the operand can name one element.
bool overlaps_itself(const OperandView& view) {
  if (is_dense(view)) return false;
  // Axes by growing stride; insertion, because there are at most eight.
  std::array<std::pair<std::int64_t, std::int64_t>, kMaxRank> axes;  // |stride|, extent
  int count = 0;
  for (int axis = 0; axis < view.rank; ++axis) {
    if (view.extents[axis] == 0) return false;
    if (view.extents[axis] == 1) continue;
    const std::int64_t stride = std::abs(view.strides[axis]);
    int place = count++;
    for (; place > 0 && axes[place - 1].first > stride; --place) axes[place] = axes[place - 1];
    axes[place] = {stride, view.extents[axis]};
  }
  std::int64_t covered = 1;  // one past the farthest element that the smaller axes reach
  for (int i = 0; i < count; ++i) {
    if (axes[i].first < covered) return true;
    covered += (axes[i].second - 1) * axes[i].first;
  }
  return false;
}

// --- Words --------------------------------------------------------------------------------------

Shape shape_of(const OperandSpec& spec, int member) {
  return member < 0 ? spec.shape : spec.member_shape(member);
}

std::string dim_name(const Plan& plan, int dim) {
  return plan.descriptor.extras->dims[static_cast<std::size_t>(dim)].name.data();
}

// As Python spells a tuple; dims by their names and bounds: "(m <= 16384, 4096)".
std::string expected_shape(const Plan& plan, const OperandSpec& spec, int member) {
  const Shape shape = shape_of(spec, member);
  std::string text = "(";
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (axis > 0) text += ", ";
    const int dim = member < 0 ? spec.dims[axis] : -1;
    if (dim >= 0) text += dim_name(plan, dim) + " <= ";
    text += std::to_string(shape[axis]);
  }
  return text + (shape.rank == 1 ? ",)" : ")");
}

// What may stand in the place of a scalar in memory.
std::string by_value(const OperandSpec& spec) {
  if (is_written(spec.role)) return "";
  if (spec.dtype == DType::Bool) return "True or False, or ";
  return spec.dtype == DType::Float64 ? "a number, or " : "an integer, or ";
}

// What has to be given: `otherwise` names what may be in its place.
std::string memory_text(const Plan& plan, int index, int member, const char* otherwise) {
  const OperandSpec& spec = plan.specs[static_cast<std::size_t>(index)];
  const bool scalar = spec.kind == OperandKind::Scalar;
  std::string text = scalar ? by_value(spec) : "";
  text += "shape " + expected_shape(plan, spec, member) + " ";
  text += name_of(storage_of(spec.dtype));
  if (is_four_bit(spec.dtype))
    text += " (two " + std::string(name_of(spec.dtype)) + " codes a byte)";
  if (is_fp8(spec.dtype)) text += " (or uint8)";
  if (scalar && spec.dtype == DType::Float64) text += " (or float32)";
  return text + otherwise + " on " + device_text(plan.device);
}

ArgumentFailure mismatch(const Plan& plan, int index, int member, const TensorView& view,
                         std::string advice = "") {
  return {operand_name(plan, index, member), expected_text(plan, index, member),
          describe(view, false), std::move(advice)};
}

// --- One operand --------------------------------------------------------------------------------

bool same_dtype(const OperandSpec& spec, DType dtype) {
  if (spec.kind == OperandKind::Scalar && spec.dtype == DType::Float64 && dtype == DType::Float32)
    return true;
  return dtype == storage_of(spec.dtype) || (is_fp8(spec.dtype) && dtype == DType::UInt8);
}

// Compares an axis that is a dim with what other operands have; the first to come tells.
bool accept_dim(const Plan& plan, int index, int dim, const TensorView& view, std::int64_t extent,
                Extents& extents, ArgumentFailure& failure) {
  const auto at = static_cast<std::size_t>(dim);
  if (extent < 0 || extent > plan.descriptor.extras->dims[at].max) {
    failure = mismatch(plan, index, -1, view);
    return false;
  }
  if (extents.operand[at] < 0) {
    extents.at[at] = extent;
    extents.operand[at] = static_cast<std::int16_t>(index);
    return true;
  }
  if (extents.at[at] == extent) return true;
  failure = mismatch(plan, index, -1, view,
                     dim_name(plan, dim) + " is " + std::to_string(extents.at[at]) + " in " +
                         operand_name(plan, extents.operand[at]));
  return false;
}

// Whether rank and extents are the spec's.
bool accept_shape(const Plan& plan, int index, int member, const TensorView& view, Extents& extents,
                  ArgumentFailure& failure) {
  const OperandSpec& spec = plan.specs[static_cast<std::size_t>(index)];
  const Shape shape = shape_of(spec, member);
  const bool single = spec.kind == OperandKind::Scalar && view.ndim == 1 && view.shape[0] == 1;
  bool same = view.ndim == shape.rank || single;
  for (int axis = 0; same && axis < view.ndim; ++axis) {
    const int dim = single || member >= 0 ? -1 : spec.dims[axis];
    if (dim < 0) {
      same = single || view.shape[axis] == shape[axis];
    } else if (!accept_dim(plan, index, dim, view, view.shape[axis], extents, failure)) {
      return false;
    }
  }
  if (!same) failure = mismatch(plan, index, member, view);
  return same;
}

bool accept_strides(const Plan& plan, int index, int member, const TensorView& view,
                    std::int64_t elements, ArgumentFailure& failure) {
  const int last = view.ndim - 1;
  if (elements == 0) return true;
  const bool innermost = last < 0 || view.shape[last] <= 1 || view.strides[last] == 1;
  const bool listed = member < 0 || is_dense(view.shape.data(), view.strides.data(), view.ndim);
  if (innermost && listed) return true;
  failure = {operand_name(plan, index, member),
             innermost ? "elements that follow one another" : "an innermost stride of 1",
             describe(view, true),
             innermost ? "members of a list are contiguous"
                       : "pass a tensor whose last axis is contiguous"};
  return false;
}

// Whether planq may do with the memory what the operand's role says.
bool accept_access(const Plan& plan, int index, int member, const TensorView& view,
                   ArgumentFailure& failure) {
  const bool written = is_written(plan.specs[static_cast<std::size_t>(index)].role);
  const bool on_host = view.memory == Memory::Host;
  std::string advice;
  if (written && view.readonly)
    advice = "the tensor is read-only, and planq writes it";
  else if (view.copied && written)
    advice = "it exports a copy, which would take what planq writes along";
  else if (view.copied && !on_host)
    advice = "it exports a copy, which would be freed before the kernel ran";
  if (advice.empty()) return true;
  failure = mismatch(plan, index, member, view, std::move(advice));
  return false;
}

bool accept_address(const Plan& plan, int index, int member, const TensorView& view,
                    std::int64_t elements, ArgumentFailure& failure) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  const auto size = static_cast<std::uintptr_t>(storage_bytes(view.dtype));
  if (elements == 0 || (view.data && address % size == 0)) return true;
  failure = mismatch(plan, index, member, view,
                     view.data ? "the address is not aligned to the element"
                               : "the address is null: the tensor holds no memory");
  return false;
}

}  // namespace

bool accept(const Plan& plan, int index, const TensorView& view, OperandView& operand,
            Extents& extents, ArgumentFailure& failure, int member) {
  const OperandSpec& spec = plan.specs[static_cast<std::size_t>(index)];
  if (!same_dtype(spec, view.dtype) || !is_on(view, plan.device)) {
    failure = mismatch(plan, index, member, view);
    return false;
  }
  if (!accept_shape(plan, index, member, view, extents, failure)) return false;
  // Of extents that are the spec's by now: the product of anybody's may overflow.
  std::int64_t elements = 1;
  for (int axis = 0; axis < view.ndim; ++axis) elements *= view.shape[axis];
  if (!accept_strides(plan, index, member, view, elements, failure) ||
      !accept_access(plan, index, member, view, failure) ||
      !accept_address(plan, index, member, view, elements, failure))
    return false;
  operand.data = view.data;
  operand.strides = view.strides;
  operand.extents = view.shape;
  operand.rank = view.ndim;
  operand.dtype = view.dtype;
  return true;
}

// --- Operands together --------------------------------------------------------------------------

namespace {

// Calls visit(view, member) for an operand, with member -1, or for each member of a list.
template <class Visit>
void for_each_tensor(const Plan& plan, Operands operands, int index, const Visit& visit) {
  const OperandView& view = operands[static_cast<std::size_t>(index)];
  if (!view.members) return visit(view, -1);
  const auto count = static_cast<int>(plan.specs[static_cast<std::size_t>(index)].shapes.count);
  for (int member = 0; member < count; ++member) visit(view.members[member], member);
}

bool meet(const Occupied& a, const Occupied& b) { return a.first < b.last && b.first < a.last; }

// Whether two that meet in memory may do so.
bool may_meet(const Plan& plan, const Occupied& a, const Occupied& b) {
  const auto replaces = [&](const Occupied& output, const Occupied& input) {
    return plan.specs[static_cast<std::size_t>(output.index)].same_as == input.index &&
           output.member == input.member && is_same(*output.view, *input.view);
  };
  return replaces(a, b) || replaces(b, a) || interleaved(*a.view, *b.view);
}

// The one that is written, or the first of two, is the one that is named.
ArgumentFailure overlap(const Plan& plan, const Occupied& a, const Occupied& b) {
  const bool before = std::pair(a.index, a.member) < std::pair(b.index, b.member);
  const bool first = a.written && (!b.written || before);
  const Occupied& blamed = first ? a : b;
  const Occupied& other = first ? b : a;
  return {operand_name(plan, blamed.index, blamed.member), "memory of its own",
          "memory that overlaps " + operand_name(plan, other.index, other.member), ""};
}

bool accept_pair(const Plan& plan, const Occupied& a, const Occupied& b, ArgumentFailure& failure) {
  if (!(a.written || b.written) || !meet(a, b) || may_meet(plan, a, b)) return true;
  failure = overlap(plan, a, b);
  return false;
}

bool accept_alone(const Plan& plan, const Occupied& entry, ArgumentFailure& failure) {
  if (!entry.written || !overlaps_itself(*entry.view)) return true;
  failure = {operand_name(plan, entry.index, entry.member),
             "strides under which no two elements share memory", "overlapping strides", ""};
  return false;
}

// Few: every pair.
bool accept_pairs(const Plan& plan, std::span<const Occupied> entries, ArgumentFailure& failure) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!accept_alone(plan, entries[i], failure)) return false;
    for (std::size_t j = 0; j < i; ++j)
      if (!accept_pair(plan, entries[j], entries[i], failure)) return false;
  }
  return true;
}

// Many: in the order of memory, each against those that have not ended where it begins. These are
// kept at the front, in the place of others that are done with.
bool accept_sorted(const Plan& plan, std::span<Occupied> entries, ArgumentFailure& failure) {
  const auto before = [](const Occupied& a, const Occupied& b) { return a.first < b.first; };
  if (!std::is_sorted(entries.begin(), entries.end(), before))
    std::sort(entries.begin(), entries.end(), before);
  auto open = entries.begin();
  for (const Occupied entry : entries) {
    if (!accept_alone(plan, entry, failure)) return false;
    open = std::remove_if(entries.begin(), open,
                          [&](const Occupied& other) { return other.last <= entry.first; });
    for (auto other = entries.begin(); other != open; ++other)
      if (!accept_pair(plan, *other, entry, failure)) return false;
    *open++ = entry;
  }
  return true;
}

Occupied occupied_by(const Plan& plan, const OperandView& view, int index, int member) {
  const bool written = is_written(plan.specs[static_cast<std::size_t>(index)].role);
  const MemorySpan span = span_of(view);
  return {span.first, span.last, &view, member, static_cast<std::int16_t>(index), written};
}

}  // namespace

void CallOperands::make_room(const Plan& plan) {
  views_.resize(plan.specs.size());
  std::size_t members = 0;
  if (plan.has_lists) {
    for (const OperandSpec& spec : plan.specs) {
      first_members_.push_back(static_cast<std::int64_t>(members));
      members += static_cast<std::size_t>(spec.shapes.count);
    }
  }
  members_.resize(members);
  occupied_.resize(plan.specs.size() + members);
}

OperandView* CallOperands::list(int index) {
  OperandView* members = members_.data() + first_member(index);
  views_[static_cast<std::size_t>(index)].members = members;
  return members;
}

void CallOperands::clear() {
  std::fill(views_.begin(), views_.end(), OperandView{});
  extents = {};
}

namespace {

bool has_dim(const OperandSpec& spec, int dim) {
  return spec.present && std::find(spec.dims.begin(), spec.dims.end(), dim) != spec.dims.end();
}

// Of a dim whose extent no operand of the call has: the first operand that would have had it, and
// the names of all that would.
ArgumentFailure untold(const Plan& plan, int dim) {
  int first = -1;
  std::string names;
  for (int i = 0; i < static_cast<int>(plan.specs.size()); ++i) {
    if (!has_dim(plan.specs[static_cast<std::size_t>(i)], dim)) continue;
    if (first < 0) first = i;
    names += (names.empty() ? "" : " or ") + operand_name(plan, i);
  }
  return {operand_name(plan, first), memory_text(plan, first, -1, ""), "None",
          "no operand tells " + dim_name(plan, dim) + ": give " + names};
}

// A dim may be an axis of nothing but operands that the caller left out.
bool accept_extents(const Plan& plan, const Extents& extents, ArgumentFailure& failure) {
  for (int dim = 0; dim < plan.dims; ++dim) {
    if (extents.operand[static_cast<std::size_t>(dim)] >= 0) continue;
    failure = untold(plan, dim);
    return false;
  }
  return true;
}

}  // namespace

bool accept_together(const Plan& plan, CallOperands& call, ArgumentFailure& failure) {
  if (!accept_extents(plan, call.extents, failure)) return false;
  constexpr std::size_t kFew = 16;
  std::size_t count = 0;
  for (int i = 0; i < static_cast<int>(call.views_.size()); ++i)
    for_each_tensor(plan, call.views_, i, [&](const OperandView& view, int member) {
      if (view.data) call.occupied_[count++] = occupied_by(plan, view, i, member);
    });
  const auto entries = std::span(call.occupied_).first(count);
  return count <= kFew ? accept_pairs(plan, entries, failure)
                       : accept_sorted(plan, entries, failure);
}

// --- Constraints --------------------------------------------------------------------------------

namespace {

// Tensors without elements have no address and no strides that matter.
bool holds(const Constraint& constraint, const OperandView& view) {
  const auto first = view.extents.begin();
  const bool empty = std::find(first, first + view.rank, 0) != first + view.rank;
  switch (constraint.kind) {
    case Constraint::Kind::Alignment:
      return empty || reinterpret_cast<std::uintptr_t>(view.data) %
                              static_cast<std::uintptr_t>(constraint.value) ==
                          0;
    case Constraint::Kind::Divisible:
      return view.extents[static_cast<std::size_t>(constraint.axis)] % constraint.value == 0;
    case Constraint::Kind::Contiguous:
      return empty || is_dense(view);
  }
  return true;
}

// The first tensor that is not what the constraint says, and its place in a list; null: there is
// none. Operands that were left out are what everything says.
const OperandView* find_broken(const Plan& plan, const Constraint& constraint, Operands operands,
                               int& member) {
  const OperandView* broken = nullptr;
  for_each_tensor(plan, operands, constraint.operand, [&](const OperandView& view, int place) {
    if (broken || !view.data || holds(constraint, view)) return;
    broken = &view;
    member = place;
  });
  return broken;
}

std::string actual_text(const Constraint& constraint, const OperandView& view) {
  switch (constraint.kind) {
    case Constraint::Kind::Alignment:
      return "one that leaves " + std::to_string(reinterpret_cast<std::uintptr_t>(view.data) %
                                                 static_cast<std::uintptr_t>(constraint.value));
    case Constraint::Kind::Divisible:
      return std::to_string(view.extents[static_cast<std::size_t>(constraint.axis)]);
    case Constraint::Kind::Contiguous:
      return "strides " + shape_text(view.strides.data(), view.rank);
  }
  return "";
}

// A kernel that takes the descriptor and asks nothing that these operands are not.
std::string pin_advice(const Plan& plan, Operands operands) {
  Preference preference = plan.preference;
  preference.sku.clear();
  preference.body.clear();
  for (const Candidate& candidate : select(plan.descriptor, preference, plan.device).candidates) {
    const auto& asked = candidate.kernel->constraints;
    const bool takes = candidate.reason.accepted() &&
                       std::all_of(asked.begin(), asked.end(), [&](const Constraint& constraint) {
                         int member = -1;
                         return find_broken(plan, constraint, operands, member) == nullptr;
                       });
    if (takes)
      return "pin sku " + std::string(candidate.kernel->sku.view()) + " and body " +
             std::string(candidate.kernel->body) + ", which takes it";
  }
  return "";
}

}  // namespace

std::string constraint_text(const Constraint& constraint) {
  switch (constraint.kind) {
    case Constraint::Kind::Alignment:
      return "an address divisible by " + std::to_string(constraint.value);
    case Constraint::Kind::Divisible:
      return "an extent of axis " + std::to_string(constraint.axis) + " divisible by " +
             std::to_string(constraint.value);
    case Constraint::Kind::Contiguous:
      return "elements that follow one another";
  }
  return "";
}

bool accept_constraints(const Plan& plan, std::span<const Constraint> constraints,
                        Operands operands, ArgumentFailure& failure) {
  for (const Constraint& constraint : constraints) {
    int member = -1;
    const OperandView* view = find_broken(plan, constraint, operands, member);
    if (!view) continue;
    failure = {operand_name(plan, constraint.operand, member), constraint_text(constraint),
               actual_text(constraint, *view), pin_advice(plan, operands)};
    return false;
  }
  return true;
}

// --- Words for messages -------------------------------------------------------------------------

std::string operand_name(const Plan& plan, int index, int member) {
  std::string name(plan.descriptor.op->operands[static_cast<std::size_t>(index)].name);
  return member < 0 ? name : name + "[" + std::to_string(member) + "]";
}

std::string expected_text(const Plan& plan, int index, int member) {
  const OperandSpec& spec = plan.specs[static_cast<std::size_t>(index)];
  if (spec.kind == OperandKind::List && member < 0)
    return "a sequence of " + std::to_string(spec.shapes.count) + " tensors";
  const bool spares = spec.optional && spec.kind != OperandKind::Scalar;
  return memory_text(plan, index, member, spares ? " or None" : "");
}

std::string device_text(const Device& device) {
  return device.backend == Backend::Host ? "host" : "cuda:" + std::to_string(device.index);
}

std::string shape_text(const std::int64_t* dims, int rank) {
  std::string text = "(";
  for (int axis = 0; axis < rank; ++axis) text += (axis ? ", " : "") + std::to_string(dims[axis]);
  return text + (rank == 1 ? ",)" : ")");
}

std::string describe(const TensorView& view, bool with_strides) {
  std::string text = shape_text(view.shape.data(), view.ndim) + " ";
  text +=
      view.dtype == DType::Unset ? std::string(view.type_text) : std::string(name_of(view.dtype));
  switch (view.memory) {
    case Memory::Host:
      text += " on host";
      break;
    case Memory::Cuda:
      text += " on cuda:" + std::to_string(view.device);
      break;
    case Memory::Managed:
      text += " in managed memory";
      break;
    case Memory::Other:
      text += " on other memory";
      break;
  }
  if (with_strides) text += " with strides " + shape_text(view.strides.data(), view.ndim);
  return text;
}

bool is_on(const TensorView& view, const Device& device) {
  if (view.memory == Memory::Managed) return true;
  if (device.backend == Backend::Host) return view.memory == Memory::Host;
  return view.memory == Memory::Cuda && view.device == device.index;
}

// --- The workspace ------------------------------------------------------------------------------

const char* workspace_problem(std::size_t needed, const Workspace& workspace, const Plan& plan,
                              Operands operands) {
  if (needed > 0 && !workspace.data && workspace.bytes == 0) return "none was given";
  if (workspace.bytes < needed) return "it is too small";
  if (needed == 0) return nullptr;
  if (!workspace.data) return "its address is null";
  const auto begin = reinterpret_cast<std::uintptr_t>(workspace.data);
  if (begin % kWorkspaceAlignment != 0) return "it is misaligned";
  // Memory that it shared with an operand would be overwritten.
  const MemorySpan taken{begin, begin + needed};
  bool meets = false;
  for (int i = 0; i < static_cast<int>(operands.size()); ++i)
    for_each_tensor(plan, operands, i, [&](const OperandView& view, int) {
      meets = meets || taken.meets(span_of(view));
    });
  return meets ? "it overlaps an operand" : nullptr;
}

}  // namespace planq
