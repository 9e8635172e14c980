#include "bindings/c/plan.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "bindings/c/errors.h"
#include "bindings/dlpack.h"
#include "core/messages.h"
#include "core/selection_text.h"
#include "core/serial.h"
#include "core/stored.h"

// The type that planq.h declares has the layout of DLPack's.
static_assert(sizeof(planq_tensor) == sizeof(planq::dlpack::Tensor) &&
              offsetof(planq_tensor, byte_offset) == offsetof(planq::dlpack::Tensor, byte_offset) &&
              offsetof(planq_tensor, dtype) == offsetof(planq::dlpack::Tensor, dtype));

namespace planq::c {

// --- Plans ---------------------------------------------------------------------------------------

SharedPlan::SharedPlan(const Stream& stream, const Descriptor& descriptor,
                       const Preference& preference) {
  plan_.descriptor = descriptor;
  plan_.preference = preference;
  check(device_of(stream, plan_.device), kReadingDevice);
  Status status;
  if (!make_plan(stream, plan_, status))
    refuse(PLANQ_ERROR_NO_KERNEL, no_kernel_text(descriptor, preference, plan_.device));
  check(status, kPreparing);
  put(std::make_unique<CallOperands>(plan_));
}

SharedPlan::SharedPlan(const Device& device, const Descriptor& descriptor,
                       const Preference& preference) {
  plan_.descriptor = descriptor;
  plan_.preference = preference;
  plan_.device = device;
  if (!foresee_plan(plan_))
    refuse(PLANQ_ERROR_NO_KERNEL, no_kernel_text(descriptor, preference, device));
}

const Plan& SharedPlan::runnable() const {
  if (!plan_.prepared.front().is_prepared) refuse(PLANQ_ERROR_STREAM, foreseen_text(plan_));
  return plan_;
}

SharedPlan::~SharedPlan() {
  for (std::atomic<CallOperands*>& idle : idle_) delete idle.load(std::memory_order_acquire);
}

std::unique_ptr<CallOperands> SharedPlan::take() {
  for (std::atomic<CallOperands*>& idle : idle_) {
    if (!idle.load(std::memory_order_relaxed)) continue;
    if (CallOperands* call = idle.exchange(nullptr, std::memory_order_acquire))
      return std::unique_ptr<CallOperands>(call);
  }
  return std::make_unique<CallOperands>(plan_);
}

void SharedPlan::put(std::unique_ptr<CallOperands> call) {
  call->clear();
  for (std::atomic<CallOperands*>& idle : idle_) {
    CallOperands* none = nullptr;
    if (!idle.compare_exchange_strong(none, call.get(), std::memory_order_release,
                                      std::memory_order_relaxed))
      continue;
    call.release();
    return;
  }
}

// --- Devices
// ---------------------------------------------------------------------------------------

Device read_device(const planq_device* given) {
  check_given(given, "device", "a device");
  const auto refuse_device = [](const std::string& text) { refuse(Fault{"device", text}); };
  if (given->backend != PLANQ_HOST && given->backend != PLANQ_CUDA)
    refuse_device("expected PLANQ_HOST or PLANQ_CUDA, got " + std::to_string(given->backend));
  if (!std::memchr(given->name, 0, sizeof given->name))
    refuse_device("expected a name that ends, got one of more than " +
                  std::to_string(sizeof given->name - 1) + " bytes");
  Device device;
  device.backend = given->backend == PLANQ_HOST ? Backend::Host : Backend::Cuda;
  device.index = given->index;
  device.arch = given->arch;
  device.multiprocessors = given->multiprocessors;
  device.shared_memory_per_block = given->shared_memory_per_block;
  device.l2_bytes = given->l2_bytes;
  device.name = given->name;
  return device;
}

planq_device device_named(std::string_view name) {
  Device device;
  if (!named_device(std::string(name), device))
    refuse(Fault{"device", std::string(kNamesOfDevices) + ", got " + shown(Json::text(name))});
  planq_device found{};
  found.backend = device.backend == Backend::Host ? PLANQ_HOST : PLANQ_CUDA;
  found.index = device.index;
  found.arch = device.arch;
  found.multiprocessors = device.multiprocessors;
  found.shared_memory_per_block = device.shared_memory_per_block;
  found.l2_bytes = device.l2_bytes;
  device.name.copy(found.name, sizeof found.name - 1);
  return found;
}

// --- Streams and workspaces ----------------------------------------------------------------------

Stream read_stream(const planq_stream* given) {
  if (!given)
    refuse(PLANQ_ERROR_STREAM, "expected a stream, got NULL; planq has no current stream");
  Stream stream;
  if (given->backend == PLANQ_HOST) {
    if (!are_threads(given->threads))
      refuse(PLANQ_ERROR_STREAM, threads_text(std::to_string(given->threads)));
    stream.threads = given->threads;
    return stream;
  }
  if (given->backend != PLANQ_CUDA)
    refuse(PLANQ_ERROR_STREAM,
           "expected PLANQ_HOST or PLANQ_CUDA, got " + std::to_string(given->backend));
  if (given->device < 0)
    refuse(PLANQ_ERROR_STREAM,
           "expected the number of a device, got " + std::to_string(given->device));
  stream.backend = Backend::Cuda;
  stream.handle = given->handle;
  stream.device = given->device;
  return stream;
}

void check_stream(const Plan& plan, const Stream& stream) {
  if (!is_of(plan, stream)) refuse(PLANQ_ERROR_STREAM, stream_text(plan, stream));
}

void check_workspace(const Plan& plan, const Actual& actual, CallOperands& call,
                     const Workspace& workspace) {
  const char* problem = workspace_problem(actual.workspace, workspace, plan, call.views());
  if (problem)
    refuse(PLANQ_ERROR_WORKSPACE, workspace_text(actual.workspace, workspace.bytes, problem));
}

// --- What operands have to be --------------------------------------------------------------------

// The numbers of planq.h are those of the vocabularies.
static_assert(PLANQ_ROLE_OUTPUT == static_cast<int>(Role::Output) &&
              PLANQ_ROLE_INOUT == static_cast<int>(Role::InOut) &&
              PLANQ_KIND_LIST == static_cast<int>(OperandKind::List) &&
              PLANQ_KIND_SCALAR == static_cast<int>(OperandKind::Scalar));
static_assert(PLANQ_MOST_OPERANDS == planq::kMaxOperands);
static_assert(PLANQ_WORKSPACE_ALIGNMENT == planq::kWorkspaceAlignment);
static_assert(sizeof(planq_operand_info::shape) == kMaxRank * sizeof(std::int64_t));

namespace {

Shape actual_shape(const OperandSpec& spec, const Extents& extents) {
  Shape shape = spec.shape;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(shape.rank); ++axis)
    if (const int dim = spec.dims[axis]; dim >= 0)
      shape.dims[axis] = extents.at[static_cast<std::size_t>(dim)];
  return shape;
}

// The place of the operand among all of the operator, of which a plan has some.
std::size_t place_of(const Plan& plan, std::size_t index) {
  std::size_t present = 0;
  for (std::size_t place = 0; place < plan.specs.size(); ++place)
    if (plan.specs[place].present && present++ == index) return place;
  refuse(ArgumentFailure{"index", "less than the " + std::to_string(present) + " operands",
                         std::to_string(index), ""});
}

}  // namespace

planq_operand_info operand_info(const Plan& plan, const Extents& extents, std::size_t index,
                                std::size_t member) {
  const std::size_t place = place_of(plan, index);
  const OperandSpec& spec = plan.specs[place];
  const bool listed = spec.kind == OperandKind::List;
  const auto members = listed ? static_cast<std::size_t>(spec.shapes.count) : 1;
  if (member >= members && member > 0)
    refuse(ArgumentFailure{"member", "less than " + std::to_string(members), std::to_string(member),
                           ""});
  const Shape shape = !listed       ? actual_shape(spec, extents)
                      : members > 0 ? spec.member_shape(static_cast<std::int64_t>(member))
                                    : Shape{};
  const FormatInfo& stored = format_of(storage_of(spec.dtype));
  planq_operand_info info{};
  info.name = plan.descriptor.op->operands[place].name.data();
  info.dtype = format_of(spec.dtype).name.data();
  info.role = static_cast<std::int32_t>(spec.role);
  info.kind = static_cast<std::int32_t>(spec.kind);
  info.optional = spec.optional;
  info.code = static_cast<std::uint8_t>(stored.kind);
  info.bits = static_cast<std::uint8_t>(stored.bits);
  info.members = members;
  info.ndim = shape.rank;
  std::copy_n(shape.dims.begin(), shape.rank, info.shape);
  info.bytes =
      members > 0 ? static_cast<std::size_t>(shape.elements() * storage_bytes(spec.dtype)) : 0;
  return info;
}

// --- Operands of a call
// ----------------------------------------------------------------------------

namespace {

class Reader {
 public:
  Reader(const Plan& plan, CallOperands& call) : plan_(plan), call_(call) {}

  void read(std::span<const planq_operand> given) {
    for (std::size_t i = 0; i < given.size(); ++i) place(given[i], i);
    const int count = static_cast<int>(plan_.specs.size());
    for (int i = 0; i < count; ++i) read_operand(i, given_[static_cast<std::size_t>(i)]);
    ArgumentFailure failure;
    if (!accept_together(plan_, call_, failure)) refuse(failure);
  }

 private:
  const OperandSpec& spec(int index) const { return plan_.specs[static_cast<std::size_t>(index)]; }
  std::span<const OperandInfo> declared() const { return plan_.descriptor.op->operands; }

  // Finds the operand that is meant. Most callers keep the order of the operator.
  void place(const planq_operand& operand, std::size_t at) {
    if (!operand.name) refuse(ArgumentFailure{label(at), "a name", "NULL", ""});
    const std::string_view name(operand.name);
    std::size_t index = at;
    if (index >= declared().size() || declared()[index].name != name)
      for (index = 0; index < declared().size() && declared()[index].name != name; ++index) {
      }
    if (index == declared().size()) refuse_name(name, at);
    if (given_[index]) refuse(ArgumentFailure{operand.name, "one operand of this name", "two", ""});
    given_[index] = &operand;
  }
  static std::string label(std::size_t at) { return "operands[" + std::to_string(at) + "]"; }
  [[noreturn]] void refuse_name(std::string_view name, std::size_t at) const {
    std::string names;
    for (const OperandInfo& known : declared())
      names += (names.empty() ? "one of " : ", ") + std::string(known.name);
    refuse(ArgumentFailure{label(at), names, shown(Json::text(name)), ""});
  }

  [[noreturn]] void fail(int index, int member, std::string actual, std::string advice = "") const {
    refuse(ArgumentFailure{operand_name(plan_, index, member), expected_text(plan_, index, member),
                           std::move(actual), std::move(advice)});
  }

  static bool is_absent(const planq_operand& operand, bool listed) {
    if (operand.type != PLANQ_TENSORS) return false;
    if (listed) return !operand.tensors && operand.count > 0;
    return !operand.tensors || operand.count == 0 || (operand.count == 1 && !operand.tensors[0]);
  }

  void read_operand(int index, const planq_operand* operand) {
    const bool listed = spec(index).kind == OperandKind::List;
    const bool absent = !operand || is_absent(*operand, listed);
    if (!spec(index).present) {
      if (absent || (listed && operand->count == 0)) return;
      refuse(ruled_out(plan_, index, "an operand"));
    }
    if (absent && spec(index).optional) return;
    if (absent) fail(index, -1, "None");
    if (operand->type != PLANQ_TENSORS) return read_value(index, *operand);
    if (listed) return read_list(index, *operand);
    if (operand->count != 1) fail(index, -1, std::to_string(operand->count) + " of them");
    read_tensor(index, -1, operand->tensors[0], call_[index]);
  }

  void read_list(int index, const planq_operand& operand) {
    const auto count = static_cast<std::size_t>(spec(index).shapes.count);
    if (operand.count != count) fail(index, -1, std::to_string(operand.count) + " of them");
    OperandView* members = call_.list(index);
    for (std::size_t member = 0; member < count; ++member)
      read_tensor(index, static_cast<int>(member), operand.tensors[member], members[member]);
  }

  void read_tensor(int index, int member, const planq_tensor* tensor, OperandView& operand) {
    if (!tensor) fail(index, member, "None");
    if (tensor->ndim < 0 || tensor->ndim > kMaxRank)
      fail(index, member, "a tensor of " + std::to_string(tensor->ndim) + " axes",
           tensor->ndim > 0 ? kTooManyAxes : "");
    if (tensor->ndim > 0 && !tensor->shape) fail(index, member, "a tensor without a shape");
    TensorView view;
    dlpack::Tensor read;
    std::memcpy(&read, tensor, sizeof read);
    dlpack::read(read, view);
    ArgumentFailure failure;
    if (!accept(plan_, index, view, operand, call_.extents, failure, member)) refuse(failure);
  }

  void read_value(int index, const planq_operand& operand) {
    static constexpr const char* kTypes[] = {"tensors", "an int64", "a float64", "a bool"};
    if (operand.type < PLANQ_TENSORS || operand.type > PLANQ_BOOL)
      refuse(ArgumentFailure{operand_name(plan_, index), "a type of PLANQ_TENSORS to PLANQ_BOOL",
                             std::to_string(operand.type), ""});
    const DType dtype = spec(index).dtype;
    const bool scalar = spec(index).kind == OperandKind::Scalar && !is_written(spec(index).role);
    const bool real = operand.type == PLANQ_FLOAT64;
    const bool fits = dtype == DType::Float64 ? real || operand.type == PLANQ_INT64
                      : dtype == DType::Bool  ? operand.type == PLANQ_BOOL
                                              : operand.type == PLANQ_INT64;
    if (!scalar || !fits) fail(index, -1, kTypes[operand.type]);
    OperandView& view = call_[index];
    view.dtype = dtype;
    if (dtype == DType::Float64)
      view.real = real ? operand.value.real : static_cast<double>(operand.value.integer);
    else
      view.value = dtype == DType::Bool ? operand.value.integer != 0 : operand.value.integer;
  }

  const Plan& plan_;
  CallOperands& call_;
  std::array<const planq_operand*, kMaxOperands> given_{};
};

}  // namespace

Actual read_operands(const Plan& plan, std::span<const planq_operand> given, CallOperands& call,
                     Descriptor& storage) {
  if (given.size() > 0) check_given(given.data(), "operands", "an array");
  Reader(plan, call).read(given);
  const Actual actual = actual_of(plan, call.extents, storage);
  const auto& constraints = actual.prepared->kernel->constraints;
  ArgumentFailure failure;
  if (!constraints.empty() && !accept_constraints(plan, constraints, call.views(), failure))
    refuse(failure);
  return actual;
}

// --- Stored plans --------------------------------------------------------------------------------

namespace {

[[noreturn]] void refuse_mismatch(const std::string& text) {
  refuse(PLANQ_ERROR_PLAN_MISMATCH, text);
}

std::shared_ptr<SharedPlan> select_again(const Stream& stream, const Descriptor& descriptor,
                                         const Preference& preference) {
  try {
    return std::make_shared<SharedPlan>(stream, descriptor, preference);
  } catch (const Refusal& refusal) {
    if (refusal.code != PLANQ_ERROR_NO_KERNEL) throw;
    refuse_mismatch(unselected_text(refusal.text));
  }
}

}  // namespace

std::shared_ptr<SharedPlan> restore(const Stream& stream, std::string_view text) {
  Json stored;
  if (const std::string wrong = read_stored(text, stored); !wrong.empty()) refuse_mismatch(wrong);
  Descriptor descriptor;
  Preference preference;
  check_ok(read_descriptor(*stored.find("descriptor"), descriptor));
  check_ok(read_preference(*stored.find("preference"), preference));
  std::shared_ptr<SharedPlan> plan = select_again(stream, descriptor, preference);
  const auto differences = differences_of(stored, plan_json(plan->plan()));
  if (!differences.empty()) refuse_mismatch(mismatch_text(differences));
  return plan;
}

}  // namespace planq::c
