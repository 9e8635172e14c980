#include "bindings/python/plan.h"

#include <structmember.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <vector>

#include "bindings/python/errors.h"
#include "bindings/python/kernels.h"
#include "bindings/python/native.h"
#include "bindings/python/record.h"
#include "bindings/python/stream.h"
#include "bindings/python/tensor.h"
#include "bindings/python/vocabularies.h"
#include "core/device.h"
#include "core/messages.h"
#include "core/serial.h"

namespace planq::python {

namespace py = pybind11;

namespace {

constexpr const char* kUnmade = "this plan was never made; use Plan.select";

// The plan behind self, for methods that pybind11 dispatches.
const PlanBase& made(py::handle self) {
  const PlanBase* base = native<PlanBase>(self.ptr());
  if (!base) throw py::type_error(kUnmade);
  return *base;
}

// Called as verbose_hook(event, plan) before every launch when PLANQ_VERBOSE asks for it.
PyObject* verbose_hook = nullptr;

// Takes the sentence of the Python error, and drops the error. False where it is not an Exception
// but, for example, a KeyboardInterrupt: then it stays set, and is nobody's fault.
bool take_error(std::string& text) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* words = value ? PyObject_Str(value) : nullptr;
  const char* utf8 = words ? PyUnicode_AsUTF8(words) : nullptr;
  text = utf8 ? utf8 : "its memory could not be read";
  // Libraries append C++ stack traces, which differ from call to call.
  text = text.substr(0, text.find('\n'));
  PyErr_Clear();
  Py_XDECREF(words);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return true;
}

// Why an object cannot be read, and what to do.
const char* intake_advice(Intake intake) {
  switch (intake) {
    case Intake::TooManyAxes:
      return kTooManyAxes;
    case Intake::Fake:
      return "a tensor subclass with its own dispatch has no memory of its own";
    case Intake::Masked:
      return "its mask would be lost; pass a.filled(value) or a.data";
    case Intake::Negative:
      return "its negative bit is set: its memory holds the values with the other sign; pass "
             "t.resolve_neg()";
    case Intake::RequiresGrad:
      return "it requires a gradient, which would be lost; call under torch.no_grad(), pass "
             "t.detach(), or use planq.torch, which differentiates what has a gradient";
    default:
      return "it offers no DLPack, buffer, array interface or CUDA array interface";
  }
}

// Reads the operands of a call. What refuses one fills `failure`, or leaves it empty where a Python
// error is to go on.
class Reader {
 public:
  Reader(const PlanBase& base, Keep keep, Given& given, ArgumentFailure& failure)
      : base_(base), plan_(base.plan()), keep_(keep), given_(given), failure_(failure) {}

  bool read(PyObject* arguments) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(arguments)) != base_.arguments_type()) {
      failure_ = {"args", reinterpret_cast<PyTypeObject*>(base_.arguments_type())->tp_name,
                  Py_TYPE(arguments)->tp_name, ""};
      return false;
    }
    return read_all([&](int index) { return base_.operand(arguments, index); });
  }
  // The same of an array with every operand in its place.
  bool read(PyObject* const* operands) {
    return read_all([&](int index) { return Ref(Py_NewRef(operands[index])); });
  }

 private:
  // Operands that are only borrowed are read last: no Python code runs after that.
  template <class OperandAt>
  bool read_all(const OperandAt& operand_at) {
    const int count = static_cast<int>(plan_.specs.size());
    std::array<bool, kMaxOperands> deferred{};
    for (int i = 0; i < count; ++i) {
      Ref& object = given_.held[static_cast<std::size_t>(i)].object;
      object = operand_at(i);
      if (!object || !read_operand(i, object.get(), deferred[static_cast<std::size_t>(i)]))
        return false;
    }
    for (int i = 0; i < count; ++i)
      if (deferred[static_cast<std::size_t>(i)] && !read_deferred(i)) return false;
    return accept_together(plan_, given_.operands, failure_);
  }

  const OperandSpec& spec(int index) const { return plan_.specs[static_cast<std::size_t>(index)]; }
  CallOperands& views() { return given_.operands; }
  Held& held(int index) { return given_.held[static_cast<std::size_t>(index)]; }
  Held* held_members(int index) {
    return given_.held_members.data() + given_.operands.first_member(index);
  }

  bool fail(int index, int member, const char* actual, std::string advice) {
    failure_ = {operand_name(plan_, index, member), expected_text(plan_, index, member), actual,
                std::move(advice)};
    return false;
  }
  // Of an object that cannot be read.
  bool refuse(int index, int member, PyObject* object, Intake intake) {
    std::string advice;
    if (intake != Intake::Refused)
      advice = intake_advice(intake);
    else if (!take_error(advice))
      return false;
    return fail(index, member, object == Py_None ? "None" : Py_TYPE(object)->tp_name,
                std::move(advice));
  }

  bool read_operand(int index, PyObject* object, bool& deferred) {
    if (!spec(index).present) {
      if (object == Py_None) return true;
      failure_ = ruled_out(plan_, index, Py_TYPE(object)->tp_name);
      return false;
    }
    if (object == Py_None && spec(index).optional) return true;
    if (object == Py_None) return refuse(index, -1, object, Intake::NotATensor);
    if (spec(index).kind == OperandKind::List) return read_list(index, object, deferred);
    const bool by_value = spec(index).kind == OperandKind::Scalar && !is_written(spec(index).role);
    if (by_value && is_value(spec(index).dtype, object)) return read_value(index, object);
    if (!examine_one(index, -1, object, deferred)) return false;
    return deferred || read_memory(index);
  }

  // What has to be known before memory is read. Memory that would only be borrowed is `deferred`.
  bool examine_one(int index, int member, PyObject* object, bool& deferred) {
    const Examined found = examine(object);
    if (found.intake != Intake::Ok) return refuse(index, member, object, found.intake);
    if (found.requires_grad) given_.gradients = object;
    deferred = deferred || (found.borrows && keep_ == Keep::Call);
    return true;
  }

  bool read_memory(int index) { return read_memory(index, -1, held(index), views()[index]); }
  bool read_memory(int index, int member, Held& held, OperandView& operand) {
    TensorView view;
    const Intake intake = read_tensor(held.object.get(), keep_, view, held.exported);
    if (intake != Intake::Ok) return refuse(index, member, held.object.get(), intake);
    return accept(plan_, index, view, operand, given_.operands.extents, failure_, member);
  }

  bool read_deferred(int index) {
    return spec(index).kind == OperandKind::List ? read_members(index) : read_memory(index);
  }
  bool read_members(int index) {
    OperandView* members = given_.operands.list(index);
    Held* held = held_members(index);
    for (int member = 0; member < spec(index).shapes.count; ++member)
      if (!read_memory(index, member, held[member], members[member])) return false;
    return true;
  }

  // The members stay as they are from here on, whatever becomes of the sequence.
  bool read_list(int index, PyObject* object, bool& deferred) {
    const Ref sequence(PySequence_Fast(object, "expected a sequence of tensors"));
    if (!sequence) return refuse(index, -1, object, Intake::Refused);
    const std::int64_t count = PySequence_Fast_GET_SIZE(sequence.get());
    if (count != spec(index).shapes.count)
      return fail(index, -1, (std::to_string(count) + " of them").c_str(), "");
    Held* members = held_members(index);
    for (std::int64_t i = 0; i < count; ++i)
      members[i].object = Ref(Py_NewRef(PySequence_Fast_GET_ITEM(sequence.get(), i)));
    for (std::int64_t i = 0; i < count; ++i)
      if (!examine_one(index, static_cast<int>(i), members[i].object.get(), deferred)) return false;
    return deferred || read_members(index);
  }

  static bool is_value(DType dtype, PyObject* object) {
    if (dtype == DType::Float64) return is_real(object);
    return dtype == DType::Bool ? is_flag(object) : is_index(object);
  }
  bool read_value(int index, PyObject* object) {
    if (spec(index).dtype == DType::Float64) return read_real(index, object);
    return spec(index).dtype == DType::Bool ? read_flag(index, object)
                                            : read_integer(index, object);
  }

  bool read_flag(int index, PyObject* object) {
    const int value = PyObject_IsTrue(object);
    if (value < 0) return refuse(index, -1, object, Intake::Refused);
    views()[index].dtype = DType::Bool;
    views()[index].value = value;
    return true;
  }

  // A caller's own integer: 64 bits, with or without a sign.
  bool read_integer(int index, PyObject* object) {
    const Ref number(PyNumber_Index(object));
    if (!number) return refuse(index, -1, object, Intake::Refused);
    OperandView& operand = views()[index];
    operand.dtype = spec(index).dtype;
    int overflow = 0;
    operand.value = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
    if (overflow > 0) {
      operand.value = static_cast<std::int64_t>(PyLong_AsUnsignedLongLong(number.get()));
      overflow = PyErr_Occurred() != nullptr;
      PyErr_Clear();
    }
    return overflow == 0 || fail(index, -1, "an integer of more than 64 bits", "");
  }

  bool read_real(int index, PyObject* object) {
    const Ref number(PyNumber_Float(object));
    if (!number) return refuse(index, -1, object, Intake::Refused);
    views()[index].dtype = DType::Float64;
    views()[index].real = PyFloat_AS_DOUBLE(number.get());
    return true;
  }

  const PlanBase& base_;
  const Plan& plan_;
  Keep keep_;
  Given& given_;
  ArgumentFailure& failure_;
};

// A host launch takes some microseconds where its operands have no more bytes than this.
constexpr std::int64_t kSmallBytes = 1 << 16;

std::int64_t operand_bytes(const Plan& plan) {
  std::int64_t bytes = 0;
  const auto add = [&](const Shape& shape, DType dtype) {
    if (bytes <= kSmallBytes)
      bytes += std::min(shape.elements(), kSmallBytes + 1) * storage_bytes(dtype);
  };
  for (const OperandSpec& spec : plan.specs) {
    if (!spec.present) continue;
    if (spec.kind != OperandKind::List) add(spec.shape, spec.dtype);
    for (std::int64_t i = 0; i < spec.shapes.count; ++i) add(spec.member_shape(i), spec.dtype);
  }
  return bytes;
}

PyObject* raise_failure(const ArgumentFailure& failure) {
  return failure.operand.empty() ? nullptr : raise_argument_error(failure);
}

// Whether the operands are what the kernel asks beyond their specs.
bool meet_constraints(const Plan& plan, const Actual& actual, Given& given,
                      ArgumentFailure& failure) {
  const auto& constraints = actual.prepared->kernel->constraints;
  return constraints.empty() ||
         accept_constraints(plan, constraints, given.operands.views(), failure);
}

// The workspace is a byte tensor on the plan's device or (pointer, bytes).
bool read_workspace(const Plan& plan, PyObject* object, Workspace& workspace, Ref& exported) {
  if (object == Py_None) return true;
  if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == 2) {
    PyObject *pointer = PyTuple_GET_ITEM(object, 0), *bytes = PyTuple_GET_ITEM(object, 1);
    const bool integers = PyLong_Check(pointer) && PyLong_Check(bytes);
    if (integers) {
      workspace.data = static_cast<std::byte*>(PyLong_AsVoidPtr(pointer));
      if (!PyErr_Occurred()) workspace.bytes = PyLong_AsSize_t(bytes);
    }
    if (integers && !PyErr_Occurred()) return true;
    PyErr_Clear();
    raise_workspace_error(plan.workspace, 0, "(pointer, bytes) are two unsigned integers");
    return false;
  }
  TensorView view;
  Intake intake = examine(object).intake;
  if (intake == Intake::Ok) intake = read_tensor(object, Keep::Export, view, exported);
  if (!drop_exception()) return false;
  const bool bytes = intake == Intake::Ok && view.ndim == 1 && view.dtype != DType::Unset &&
                     storage_bytes(view.dtype) == 1 &&
                     (view.shape[0] <= 1 || view.strides[0] == 1) && !view.readonly && !view.copied;
  if (bytes && is_on(view, plan.device)) {
    workspace = {static_cast<std::byte*>(view.data), static_cast<std::size_t>(view.shape[0])};
    return true;
  }
  raise_workspace_error(
      plan.workspace, 0,
      bytes ? "it is on another device"
            : "expected a writable one-dimensional byte tensor or (pointer, bytes)");
  return false;
}

// Whether the workspace will do for a call.
bool meet_workspace(const Plan& plan, const Actual& actual, Given& given,
                    const Workspace& workspace) {
  const char* problem =
      workspace_problem(actual.workspace, workspace, plan, given.operands.views());
  if (!problem) return true;
  raise_workspace_error(actual.workspace, workspace.bytes, problem);
  return false;
}

bool read_run_stream(const Plan& plan, PyObject* object, Stream& stream) {
  if (!read_stream(object, stream)) return false;
  if (is_of(plan, stream)) return true;
  raise_stream_error(stream_text(plan, stream));
  return false;
}

PyObject* finish(const Plan& plan, const Status& status) {
  if (status.ok()) Py_RETURN_NONE;
  return raise_cuda_error(status.cuda_error, std::string(plan.kernel->sku.view()).c_str());
}

// Host launches compute here and now. Other Python threads may run meanwhile, unless the launch is
// so small that its operands were borrowed.
template <class Launch>
PyObject* launch_now(const PlanBase& base, const Launch& launch) {
  if (base.keeps_gil()) return finish(base.plan(), launch());
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = launch();
  Py_END_ALLOW_THREADS;
  return finish(base.plan(), status);
}

bool announce(PyObject* plan) {
  if (!verbose_hook) return true;
  PyObject* answer = PyObject_CallFunction(verbose_hook, "sO", "run", plan);
  Py_XDECREF(answer);
  return answer != nullptr;
}

// Runs on a stream with a workspace and the operands that `read` reads.
template <class Read>
PyObject* run_with(PyObject* self, const PlanBase& base, const Stream& stream, PyObject* memory,
                   const Read& read) {
  const Plan& plan = base.plan();
  const std::int64_t number = base.runs().next();
  const bool hooked = verbose_hook || number >= 0;
  const Keep keep = base.keeps_gil() && !hooked ? Keep::Call : Keep::Export;
  Workspace workspace;
  Ref workspace_export;
  GivenLease lease = base.lease();
  Given& given = *lease;
  ArgumentFailure failure;
  if (!read_workspace(plan, memory, workspace, workspace_export)) return nullptr;
  if (!read(Reader(base, keep, given, failure))) return raise_failure(failure);
  Descriptor storage;
  const Actual actual = actual_of(plan, given.operands.extents, storage);
  if (!meet_constraints(plan, actual, given, failure)) return raise_failure(failure);
  if (!meet_workspace(plan, actual, given, workspace) || !announce(self)) return nullptr;
  Sampled sampled;
  if (number >= 0 &&
      !sampled.begin(self, number, stream, described_operands(plan, given.operands.views()).get()))
    return nullptr;
  return sampled.end(launch_now(base, [&] {
    Bound bound(stream);
    return planq::bind(plan, actual, given.operands.views(), workspace, stream, bound);
  }));
}

// plan.run(stream, workspace, args)
PyObject* run(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* keywords) {
  if (count != 3 || (keywords && PyTuple_GET_SIZE(keywords) != 0)) {
    PyErr_SetString(PyExc_TypeError, "run takes exactly (stream, workspace, args), by position");
    return nullptr;
  }
  const PlanBase* base = native<PlanBase>(self);
  if (!base) {
    PyErr_SetString(PyExc_TypeError, kUnmade);
    return nullptr;
  }
  Stream stream;
  if (!read_run_stream(base->plan(), arguments[0], stream)) return nullptr;
  return run_with(self, *base, stream, arguments[1],
                  [&](Reader reader) { return reader.read(arguments[2]); });
}

// A bound launch: operands and workspace validated once. `kept` has the objects and what they
// exported, so that their memory stays as long as the launch.
struct Launch {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* plan;
  PyObject* kept;
  PyObject* gradients;  // in `kept`: an operand that requires a gradient; null: there is none
  PyObject* described;  // the operands for the record hook; null: there was none
  const PlanBase* base;
  Bound bound;
};

// An operand that was bound while no gradients were recorded may not be used while they are.
bool loses_gradient(const Launch& bound) {
  const int recorded = bound.gradients ? records_gradients(bound.gradients) : 0;
  if (recorded == 0) return false;
  if (recorded == 1)
    raise_argument_error({"args", "operands without gradients", "one that requires a gradient",
                          intake_advice(Intake::RequiresGrad)});
  return true;
}

PyObject* call_launch(PyObject* self, PyObject* const* arguments, std::size_t flags,
                      PyObject* keywords) {
  auto* bound = reinterpret_cast<Launch*>(self);
  if (PyVectorcall_NARGS(flags) != 1 || (keywords && PyTuple_GET_SIZE(keywords) != 0)) {
    PyErr_SetString(PyExc_TypeError, "a launch takes exactly (stream), by position");
    return nullptr;
  }
  Stream stream;
  if (!read_run_stream(bound->base->plan(), arguments[0], stream) || loses_gradient(*bound) ||
      !announce(bound->plan))
    return nullptr;
  Sampled sampled;
  const std::int64_t number = bound->described ? bound->base->runs().next() : -1;
  if (number >= 0 && !sampled.begin(bound->plan, number, stream, bound->described)) return nullptr;
  return sampled.end(launch_now(*bound->base, [&] { return launch(bound->bound, stream); }));
}

PyObject* body_of_launch(PyObject* self, void*) {
  const std::string_view body = reinterpret_cast<Launch*>(self)->bound.body();
  return PyUnicode_FromStringAndSize(body.data(), static_cast<Py_ssize_t>(body.size()));
}

int traverse_launch(PyObject* self, visitproc visit, void* arg) {
  auto* bound = reinterpret_cast<Launch*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(bound->plan);
  Py_VISIT(bound->kept);
  Py_VISIT(bound->described);
  return 0;
}

void free_launch(PyObject* self) {
  auto* bound = reinterpret_cast<Launch*>(self);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_XDECREF(bound->plan);
  Py_XDECREF(bound->kept);
  Py_XDECREF(bound->described);
  bound->bound.~Bound();
  type->tp_free(self);
  Py_DECREF(type);
}

PyTypeObject* launch_type() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launch, vectorcall), READONLY, nullptr},
      {"plan", T_OBJECT_EX, offsetof(Launch, plan), READONLY, "the plan that made this launch"},
      {nullptr, 0, 0, 0, nullptr}};
  static PyGetSetDef computed[] = {
      {"body", body_of_launch, nullptr, "the body of the plan's SKU that runs", nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyType_Slot slots[] = {
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse_launch)},
      {Py_tp_dealloc, reinterpret_cast<void*>(free_launch)},
      {Py_tp_members, members},
      {Py_tp_getset, computed},
      {Py_tp_doc,
       const_cast<char*>("A plan with its operands and workspace bound; call it with a stream.")},
      {0, nullptr}};
  static PyType_Spec spec = {"planq.Launch", sizeof(Launch), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC |
                                 Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             slots};
  static auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type;
}

}  // namespace

PlanBase::PlanBase(const Descriptor& descriptor, const Preference& preference, py::handle stream,
                   py::object arguments_type)
    : arguments_type_(std::move(arguments_type)) {
  for (const OperandInfo& operand : descriptor.op->operands)
    slots_.push_back(arguments_type_.attr(std::string(operand.name).c_str()));
  Stream target;
  if (!read_stream(stream.ptr(), target)) throw py::error_already_set();
  plan_.descriptor = descriptor;
  plan_.preference = preference;
  if (const Status status = device_of(target, plan_.device); !status.ok()) {
    raise_cuda_error(status.cuda_error, kReadingDevice);
    throw py::error_already_set();
  }
  Status status;
  if (!make_plan(target, plan_, status)) throw NoKernel();
  if (!status.ok()) {
    raise_cuda_error(status.cuda_error, kPreparing);
    throw py::error_already_set();
  }
  pool_.prepare(plan_);
  keeps_gil_ = target.backend == Backend::Cuda || operand_bytes(plan_) <= kSmallBytes;
}

Ref PlanBase::operand(PyObject* arguments, int index) const {
  PyObject* slot = slots_[static_cast<std::size_t>(index)].ptr();
  if (Py_IS_TYPE(slot, &PyMemberDescr_Type))  // as the attribute itself does it, once it is found
    return Ref(PyMember_GetOne(reinterpret_cast<const char*>(arguments),
                               reinterpret_cast<PyMemberDescrObject*>(slot)->d_member));
  return Ref(PyObject_GetAttrString(arguments, operand_name(plan_, index).c_str()));
}

py::object PlanBase::check(py::handle arguments) const {
  GivenLease lease = this->lease();
  Given& given = *lease;
  ArgumentFailure failure;
  bool taken = Reader(*this, Keep::Call, given, failure).read(arguments.ptr());
  if (taken) {
    Descriptor storage;
    taken =
        meet_constraints(plan_, actual_of(plan_, given.operands.extents, storage), given, failure);
  }
  if (taken) return py::none();
  if (failure.operand.empty()) throw py::error_already_set();
  PyObject* error = make_argument_error(failure);
  if (!error) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(error);
}

namespace {

// What a bound launch holds: the workspace, the operands and what they exported.
py::list kept_of(py::handle workspace, const Ref& exported, Given& given) {
  py::list kept;
  const auto keep = [&](const Ref& object) {
    if (object) kept.append(py::handle(object.get()));
  };
  kept.append(workspace);
  keep(exported);
  for (const auto* group : {&given.held, &given.held_members}) {
    for (const Held& held : *group) {
      keep(held.object);
      keep(held.exported);
    }
  }
  return kept;
}

}  // namespace

Bound PlanBase::bind_operands(py::handle workspace, py::handle arguments,
                              Snapshot& snapshot) const {
  Workspace memory;
  GivenLease lease = this->lease();
  Given& given = *lease;
  ArgumentFailure failure;
  Ref exported;
  if (!read_workspace(plan_, workspace.ptr(), memory, exported)) throw py::error_already_set();
  bool taken = Reader(*this, Keep::Export, given, failure).read(arguments.ptr());
  Descriptor storage;
  const Actual actual =
      taken ? actual_of(plan_, given.operands.extents, storage) : Actual{nullptr, nullptr, 0};
  if (!taken || !meet_constraints(plan_, actual, given, failure)) {
    raise_failure(failure);
    throw py::error_already_set();
  }
  if (!meet_workspace(plan_, actual, given, memory)) throw py::error_already_set();
  Bound bound;
  Stream stream;
  stream.backend = plan_.device.backend;
  stream.device = plan_.device.index;
  const Status status = planq::bind(plan_, actual, given.operands.views(), memory, stream, bound);
  if (!finish(plan_, status)) throw py::error_already_set();
  snapshot.kept = kept_of(workspace, exported, given);
  snapshot.gradients = given.gradients;
  if (!record_hook.begin) return bound;
  snapshot.described = described_operands(plan_, given.operands.views());
  if (!snapshot.described) throw py::error_already_set();
  return bound;
}

py::object PlanBase::bind(py::handle self, py::handle workspace, py::handle arguments) const {
  // A snapshot of the operands: the argument object stays the caller's to change.
  Snapshot snapshot;
  Bound steps = bind_operands(workspace, arguments, snapshot);
  auto* bound = PyObject_GC_New(Launch, launch_type());
  if (!bound) throw py::error_already_set();
  bound->vectorcall = call_launch;
  bound->plan = self.inc_ref().ptr();
  bound->kept = snapshot.kept.release().ptr();
  bound->gradients = snapshot.gradients;
  bound->described = snapshot.described.release();
  bound->base = this;
  new (&bound->bound) Bound(std::move(steps));
  PyObject_GC_Track(reinterpret_cast<PyObject*>(bound));
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(bound));
}

Extents PlanBase::read_extents(const py::dict& extents) const {
  Extents given;
  std::size_t known = 0;
  for (int dim = 0; dim < plan_.dims; ++dim) {
    const DimInfo& info = plan_.descriptor.extras->dims[static_cast<std::size_t>(dim)];
    const std::string name(info.name.data());
    if (!extents.contains(name))
      throw py::type_error("the extent of the dim " + name + " is missing");
    const std::int64_t extent = py::cast<std::int64_t>(extents[name.c_str()]);
    if (const Fault fault = check_extent(info, extent); !fault.ok()) refuse(fault);
    given.at[static_cast<std::size_t>(dim)] = extent;
    ++known;
  }
  if (known != extents.size()) throw py::type_error("only dims of the plan have extents here");
  return given;
}

std::size_t PlanBase::workspace_size(const py::dict& extents) const {
  if (extents.size() == 0) return plan_.workspace;
  Descriptor storage;
  return actual_of(plan_, read_extents(extents), storage).workspace;
}

py::list PlanBase::bodies(const py::dict& extents) const {
  Descriptor storage;
  const Extents given = extents.size() == 0 ? largest_extents(plan_) : read_extents(extents);
  return body_values(*plan_.descriptor.op, bodies_of(plan_, given, storage));
}

PyObject* run_operands(PyObject* plan, const PlanBase& base, const Stream& stream,
                       PyObject* workspace, PyObject* const* operands) {
  return run_with(plan, base, stream, workspace,
                  [&](Reader reader) { return reader.read(operands); });
}

void define_plan(py::module_& module) {
  py::class_<PlanBase> base(module, "PlanBase");
  base.def(py::init<const Descriptor&, const Preference&, py::handle, py::object>())
      .def("_check",
           [](py::handle self, py::handle arguments) { return made(self).check(arguments); })
      .def("_bind",
           [](py::handle self, py::handle workspace, py::handle arguments) {
             return made(self).bind(self, workspace, arguments);
           })
      .def_property_readonly("sku",
                             [](py::handle self) { return made(self).plan().kernel->sku.view(); })
      .def_property_readonly("revision",
                             [](py::handle self) { return made(self).plan().kernel->revision; })
      .def_property_readonly("_device", [](py::handle self) { return made(self).plan().device; })
      .def("_kernel",
           [](py::handle self) {
             const Plan& plan = made(self).plan();
             return kernel_values(*plan.descriptor.op, *plan.kernel,
                                  guarantee_of(*plan.kernel, plan.descriptor));
           })
      .def("_decided",
           [](py::handle self) {
             const Plan& plan = made(self).plan();
             return decided_values(guarantee_of(*plan.kernel, plan.descriptor));
           })
      .def("_bodies",
           [](py::handle self, const py::dict& extents) { return made(self).bodies(extents); })
      .def("_json", [](py::handle self) { return dump(plan_json(made(self).plan())); })
      .def_property_readonly("_terms", [](py::handle self) { return made(self).plan().terms(); })
      .def("_workspace_size", [](py::handle self, const py::dict& extents) {
        return made(self).workspace_size(extents);
      });
  // run is a plain C method: the dispatcher that pybind11 puts in front of a function costs as much
  // as everything that run itself does.
  static PyMethodDef method = {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(run)),
                               METH_FASTCALL | METH_KEYWORDS,
                               "run($self, stream, workspace, args, /)\n--\n\n"
                               "Validate the operands and enqueue the operation on the stream."};
  base.attr("run") = py::reinterpret_steal<py::object>(
      PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(base.ptr()), &method));
  module.attr("Launch") =
      py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(launch_type()));
  module.def("set_verbose_hook", [](py::object hook) {
    verbose_hook = hook.is_none() ? nullptr : hook.release().ptr();
  });
}

}  // namespace planq::python
