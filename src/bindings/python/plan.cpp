#include "bindings/python/plan.h"

#include <structmember.h>

#include <algorithm>

#include "bindings/python/errors.h"
#include "bindings/python/native.h"
#include "bindings/python/stream.h"
#include "bindings/python/tensor.h"
#include "core/device.h"

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

std::string device_text(const Device& device) {
  return device.backend == Backend::Host ? "host" : "cuda:" + std::to_string(device.index);
}

// What an operand has to be, in words: "shape (4096,) float32 on cuda:0".
std::string expected_text(const Plan& plan, const OperandSpec& spec) {
  std::string text = "shape " + shape_text(spec.shape.dims.data(), spec.shape.rank) + " ";
  text += name_of(storage_of(spec.dtype));
  if (is_four_bit(spec.dtype))
    text += " (two " + std::string(name_of(spec.dtype)) + " codes a byte)";
  if (is_fp8(spec.dtype)) text += " (or uint8)";
  if (spec.scalar) return "an integer, or " + text + " on " + device_text(plan.device);
  if (spec.optional) text += " or None";
  return text + " on " + device_text(plan.device);
}

ArgumentFailure mismatch(const Plan& plan, int operand, const TensorView& view,
                         const char* advice = "") {
  return {std::string(plan.descriptor.op->operands[operand]),
          expected_text(plan, plan.specs[operand]), describe(view, false), advice};
}

bool same_dtype(const OperandSpec& spec, DType dtype) {
  return dtype == storage_of(spec.dtype) || (is_fp8(spec.dtype) && dtype == DType::UInt8);
}

// Whether the object is the operand that the plan expects; fills `operand` or `failure`.
bool accept(const Plan& plan, int index, const TensorView& view, OperandView& operand,
            ArgumentFailure& failure) {
  const OperandSpec& spec = plan.specs[index];
  const bool single = spec.scalar && view.ndim == 1 && view.shape[0] == 1;
  bool same = (view.ndim == spec.shape.rank || single) && same_dtype(spec, view.dtype);
  same = same && view.on_cuda == (plan.device.backend == Backend::Cuda);
  same = same && (!view.on_cuda || view.device == plan.device.index);
  std::int64_t elements = 1;
  for (int axis = 0; same && axis < view.ndim; ++axis) {
    same = single || view.shape[axis] == spec.shape[axis];
    elements *= view.shape[axis];
  }
  if (!same) {
    failure = mismatch(plan, index, view);
    return false;
  }
  const int last = view.ndim - 1;
  if (last >= 0 && view.shape[last] > 1 && elements > 0 && view.strides[last] != 1) {
    failure = {std::string(plan.descriptor.op->operands[index]), "an innermost stride of 1",
               describe(view, true), "pass a tensor whose last axis is contiguous"};
    return false;
  }
  const bool output = spec.role == OperandSpec::Role::Output;
  if (output && view.readonly) {
    failure = mismatch(plan, index, view, "the tensor is read-only, and planq writes it");
    return false;
  }
  if (view.copied && (output || view.on_cuda)) {
    failure = mismatch(plan, index, view,
                       output ? "it exports a copy, which would take what planq writes along"
                              : "it exports a copy, which would be freed before the kernel ran");
    return false;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  if (elements > 0 && (!view.data || address % storage_bytes(spec.dtype) != 0)) {
    failure = mismatch(plan, index, view,
                       view.data ? "the address is not aligned to the element"
                                 : "the address is null: the tensor holds no memory");
    return false;
  }
  operand.data = view.data;
  operand.strides = view.strides;
  return true;
}

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
      return "it has more than 8 axes";
    case Intake::Fake:
      return "a tensor subclass with its own dispatch has no memory of its own";
    case Intake::Masked:
      return "its mask would be lost; pass a.filled(value) or a.data";
    case Intake::Negative:
      return "its negative bit is set: its memory holds the values with the other sign; pass "
             "t.resolve_neg()";
    case Intake::RequiresGrad:
      return "it requires a gradient, which would be lost; call under torch.no_grad() or pass "
             "t.detach()";
    default:
      return "it offers no DLPack, buffer, array interface or CUDA array interface";
  }
}

// Fills `failure` for an operand that cannot be read. Always false; `failure` stays empty where a
// Python error is to go on.
bool refuse(const Plan& plan, int index, PyObject* object, Intake intake,
            ArgumentFailure& failure) {
  std::string advice;
  if (intake != Intake::Refused)
    advice = intake_advice(intake);
  else if (!take_error(advice))
    return false;
  failure = {std::string(plan.descriptor.op->operands[index]),
             expected_text(plan, plan.specs[index]),
             object == Py_None ? "None" : Py_TYPE(object)->tp_name, std::move(advice)};
  return false;
}

// A caller's own integer: 64 bits, with or without a sign.
bool read_integer(const Plan& plan, int index, PyObject* object, OperandView& operand,
                  ArgumentFailure& failure) {
  const Ref number(PyNumber_Index(object));
  if (!number) return refuse(plan, index, object, Intake::Refused, failure);
  int overflow = 0;
  operand = {};
  operand.value = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
  if (overflow > 0) {
    operand.value = static_cast<std::int64_t>(PyLong_AsUnsignedLongLong(number.get()));
    overflow = PyErr_Occurred() != nullptr;
    PyErr_Clear();
  }
  if (overflow == 0) return true;
  failure = {std::string(plan.descriptor.op->operands[index]),
             expected_text(plan, plan.specs[index]), "an integer of more than 64 bits", ""};
  return false;
}

// The operands of a call, and what keeps their memory until it is done: the objects, and what each
// of them exported. `gradients` is one that requires a gradient while none are recorded.
struct Call {
  Operands operands;
  std::array<Ref, kMaxOperands> objects, exports;
  PyObject* gradients = nullptr;
};

// Reads the memory behind an operand that was examined.
bool read_memory(const Plan& plan, int index, Keep keep, Call& call, ArgumentFailure& failure) {
  TensorView view;
  PyObject* object = call.objects[index].get();
  const Intake intake = read_tensor(object, keep, view, call.exports[index]);
  if (intake != Intake::Ok) return refuse(plan, index, object, intake, failure);
  return accept(plan, index, view, call.operands[index], failure);
}

// Reads an operand, or, if that would only borrow its memory, leaves it `deferred`.
bool read_operand(const Plan& plan, int index, Keep keep, Call& call, bool& deferred,
                  ArgumentFailure& failure) {
  const OperandSpec& spec = plan.specs[index];
  PyObject* object = call.objects[index].get();
  if (!spec.present) {
    if (object == Py_None) return true;
    failure = {std::string(plan.descriptor.op->operands[index]), "None", Py_TYPE(object)->tp_name,
               "the descriptor's mode has no such operand"};
    return false;
  }
  if (object == Py_None && spec.optional) return true;
  if (object == Py_None) return refuse(plan, index, object, Intake::NotATensor, failure);
  if (spec.scalar && is_index(object))
    return read_integer(plan, index, object, call.operands[index], failure);
  const Examined found = examine(object);
  if (found.intake != Intake::Ok) return refuse(plan, index, object, found.intake, failure);
  if (found.requires_grad) call.gradients = object;
  deferred = found.borrows && keep == Keep::Call;
  return deferred || read_memory(plan, index, keep, call, failure);
}

// Outputs share memory with nothing, not even with themselves, except that one may take the place
// of the input that its spec names.
bool separate(const Plan& plan, const Operands& operands, ArgumentFailure& failure) {
  const auto name = [&](int i) { return std::string(plan.descriptor.op->operands[i]); };
  std::array<MemorySpan, kMaxOperands> spans;
  for (int i = 0; i < plan.operand_count; ++i)
    if (operands[i].data) spans[i] = span_of(plan.specs[i], operands[i]);
  for (int i = 0; i < plan.operand_count; ++i) {
    const OperandSpec& spec = plan.specs[i];
    if (spec.role != OperandSpec::Role::Output || !operands[i].data) continue;
    if (overlaps_itself(spec, operands[i])) {
      failure = {name(i), "strides under which no two elements share memory", "overlapping strides",
                 ""};
      return false;
    }
    for (int other = 0; other < plan.operand_count; ++other) {
      const bool seen = other < i && plan.specs[other].role == OperandSpec::Role::Output;
      if (other == i || seen || !spans[i].meets(spans[other])) continue;
      if (other == spec.same_as && is_same(spec, operands[i], operands[other])) continue;
      if (!interleaved(spec, operands[i], plan.specs[other], operands[other])) {
        failure = {name(i), "memory of its own", "memory that overlaps " + name(other), ""};
        return false;
      }
    }
  }
  return true;
}

// Reads and checks every operand. False: `failure` says which and why, or, with an empty operand,
// a Python error is set. What is only borrowed is read last: no Python code runs after that.
bool read_operands(const PlanBase& base, PyObject* arguments, Keep keep, Call& call,
                   ArgumentFailure& failure) {
  const Plan& plan = base.plan();
  if (reinterpret_cast<PyObject*>(Py_TYPE(arguments)) != base.arguments_type()) {
    failure = {"args", reinterpret_cast<PyTypeObject*>(base.arguments_type())->tp_name,
               Py_TYPE(arguments)->tp_name, ""};
    return false;
  }
  std::array<bool, kMaxOperands> deferred{};
  for (int i = 0; i < plan.operand_count; ++i) {
    call.objects[i] = base.operand(arguments, i);
    if (!call.objects[i]) return false;
    if (!read_operand(plan, i, keep, call, deferred[i], failure)) return false;
  }
  for (int i = 0; i < plan.operand_count; ++i)
    if (deferred[i] && !read_memory(plan, i, keep, call, failure)) return false;
  return separate(plan, call.operands, failure);
}

// A host launch over as many bytes of operands takes some microseconds.
constexpr std::int64_t kSmallBytes = 1 << 16;

std::int64_t operand_bytes(const Plan& plan) {
  std::int64_t bytes = 0;
  for (int i = 0; i < plan.operand_count && bytes <= kSmallBytes; ++i)
    if (plan.specs[i].present)
      bytes += std::min(plan.specs[i].shape.elements(), kSmallBytes + 1) *
               storage_bytes(plan.specs[i].dtype);
  return bytes;
}

PyObject* raise_failure(const ArgumentFailure& failure) {
  return failure.operand.empty() ? nullptr : raise_argument_error(failure);
}

// The workspace is a byte tensor on the plan's device or (pointer, bytes).
bool read_workspace(const Plan& plan, PyObject* object, Workspace& workspace, Ref& exported) {
  if (object == Py_None) {
    if (plan.workspace == 0) return true;
    raise_workspace_error(plan.workspace, 0, "none was given");
    return false;
  }
  if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == 2) {
    PyObject *pointer = PyTuple_GET_ITEM(object, 0), *bytes = PyTuple_GET_ITEM(object, 1);
    const bool integers = PyLong_Check(pointer) && PyLong_Check(bytes);
    if (integers) {
      workspace.data = static_cast<std::byte*>(PyLong_AsVoidPtr(pointer));
      if (!PyErr_Occurred()) workspace.bytes = PyLong_AsSize_t(bytes);
    }
    if (!integers || PyErr_Occurred()) {
      PyErr_Clear();
      raise_workspace_error(plan.workspace, 0, "(pointer, bytes) are two unsigned integers");
      return false;
    }
  } else {
    TensorView view;
    Intake intake = examine(object).intake;
    if (intake == Intake::Ok) intake = read_tensor(object, Keep::Export, view, exported);
    if (!drop_exception()) return false;
    const bool bytes = intake == Intake::Ok && view.ndim == 1 && view.dtype != DType::Unset &&
                       storage_bytes(view.dtype) == 1 &&
                       (view.shape[0] <= 1 || view.strides[0] == 1) && !view.readonly &&
                       !view.copied;
    const bool here = bytes && view.on_cuda == (plan.device.backend == Backend::Cuda) &&
                      (!view.on_cuda || view.device == plan.device.index);
    if (!here) {
      raise_workspace_error(
          plan.workspace, 0,
          bytes ? "it is on another device"
                : "expected a writable one-dimensional byte tensor or (pointer, bytes)");
      return false;
    }
    workspace = {static_cast<std::byte*>(view.data), static_cast<std::size_t>(view.shape[0])};
  }
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.data);
  const char* problem = nullptr;
  if (workspace.bytes < plan.workspace)
    problem = "it is too small";
  else if (plan.workspace > 0 && !workspace.data)
    problem = "its address is null";
  else if (plan.workspace > 0 && address % kWorkspaceAlignment)
    problem = "it is misaligned";
  if (problem) raise_workspace_error(plan.workspace, workspace.bytes, problem);
  return !problem;
}

// A workspace that shares memory with an operand would be overwritten by it.
bool workspace_apart(const Plan& plan, const Operands& operands, const Workspace& workspace) {
  if (plan.workspace == 0) return true;
  const auto begin = reinterpret_cast<std::uintptr_t>(workspace.data);
  const MemorySpan taken{begin, begin + plan.workspace};
  for (int i = 0; i < plan.operand_count; ++i) {
    if (!operands[i].data || !taken.meets(span_of(plan.specs[i], operands[i]))) continue;
    raise_workspace_error(plan.workspace, workspace.bytes, "it overlaps an operand");
    return false;
  }
  return true;
}

bool read_run_stream(const Plan& plan, PyObject* object, Stream& stream) {
  if (!read_stream(object, stream)) return false;
  const bool same = stream.backend == plan.device.backend &&
                    (stream.backend == Backend::Host || stream.device == plan.device.index);
  if (same) return true;
  Device actual;
  actual.backend = stream.backend;
  actual.index = stream.device;
  raise_stream_error("the plan was selected for " + device_text(plan.device) +
                     ", the stream is on " + device_text(actual));
  return false;
}

PyObject* finish(const Plan& plan, const Status& status) {
  if (status.ok()) Py_RETURN_NONE;
  if (status.code == Status::Code::Cuda)
    return raise_cuda_error(status.cuda_error, std::string(plan.kernel->sku).c_str());
  return raise_argument_error({std::string(plan.descriptor.op->operands[status.operand]),
                               "an operand that the row can take", status.text, ""});
}

// Host launches compute here and now. Other Python threads may run meanwhile, unless the launch is
// so small that its operands were borrowed.
PyObject* launch_now(const PlanBase& base, const Operands& operands, Workspace workspace,
                     const Stream& stream) {
  const Plan& plan = base.plan();
  if (base.keeps_gil()) return finish(plan, launch(plan, operands, workspace, stream));
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = launch(plan, operands, workspace, stream);
  Py_END_ALLOW_THREADS;
  return finish(plan, status);
}

bool announce(PyObject* plan) {
  if (!verbose_hook) return true;
  PyObject* answer = PyObject_CallFunction(verbose_hook, "sO", "run", plan);
  Py_XDECREF(answer);
  return answer != nullptr;
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
  const Plan& plan = base->plan();
  const Keep keep = base->keeps_gil() && !verbose_hook ? Keep::Call : Keep::Export;
  Stream stream;
  Workspace workspace;
  Ref workspace_export;
  Call call;
  ArgumentFailure failure;
  if (!read_run_stream(plan, arguments[0], stream)) return nullptr;
  if (!read_workspace(plan, arguments[1], workspace, workspace_export)) return nullptr;
  if (!read_operands(*base, arguments[2], keep, call, failure)) return raise_failure(failure);
  if (!workspace_apart(plan, call.operands, workspace) || !announce(self)) return nullptr;
  return launch_now(*base, call.operands, workspace, stream);
}

// A bound launch: operands and workspace validated once. `kept` has the objects and what they
// exported, so that their memory stays as long as the launch.
struct Launch {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* plan;
  PyObject* kept;
  PyObject* gradients;  // in `kept`: an operand that requires a gradient; null: there is none
  const PlanBase* base;
  Operands operands;
  Workspace workspace;
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
  return launch_now(*bound->base, bound->operands, bound->workspace, stream);
}

int traverse_launch(PyObject* self, visitproc visit, void* arg) {
  auto* bound = reinterpret_cast<Launch*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(bound->plan);
  Py_VISIT(bound->kept);
  return 0;
}

void free_launch(PyObject* self) {
  auto* bound = reinterpret_cast<Launch*>(self);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_XDECREF(bound->plan);
  Py_XDECREF(bound->kept);
  type->tp_free(self);
  Py_DECREF(type);
}

PyTypeObject* launch_type() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launch, vectorcall), READONLY, nullptr},
      {"plan", T_OBJECT_EX, offsetof(Launch, plan), READONLY, "the plan that made this launch"},
      {nullptr, 0, 0, 0, nullptr}};
  static PyType_Slot slots[] = {
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse_launch)},
      {Py_tp_dealloc, reinterpret_cast<void*>(free_launch)},
      {Py_tp_members, members},
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
  for (std::size_t i = 0; i < descriptor.op->operands.size(); ++i)
    slots_[i] = arguments_type_.attr(std::string(descriptor.op->operands[i]).c_str());
  Stream target;
  if (!read_stream(stream.ptr(), target)) throw py::error_already_set();
  plan_.descriptor = descriptor;
  plan_.preference = preference;
  plan_.device = host_device();
  if (target.backend == Backend::Cuda) {
    if (const Status status = cuda_device(target.device, plan_.device); !status.ok()) {
      raise_cuda_error(status.cuda_error, "reading the device of the stream");
      throw py::error_already_set();
    }
  }
  const Selection selection = select(descriptor, preference, plan_.device);
  if (!selection.chosen) throw NoKernel();
  if (const Status status = prepare(selection, target, plan_); !status.ok()) {
    raise_cuda_error(status.cuda_error, "preparing a kernel");
    throw py::error_already_set();
  }
  keeps_gil_ = target.backend == Backend::Cuda || operand_bytes(plan_) <= kSmallBytes;
}

Ref PlanBase::operand(PyObject* arguments, int index) const {
  PyObject* slot = slots_[index].ptr();
  if (Py_IS_TYPE(slot, &PyMemberDescr_Type))  // as the attribute itself does it, once it is found
    return Ref(PyMember_GetOne(reinterpret_cast<const char*>(arguments),
                               reinterpret_cast<PyMemberDescrObject*>(slot)->d_member));
  return Ref(
      PyObject_GetAttrString(arguments, std::string(plan_.descriptor.op->operands[index]).c_str()));
}

py::object PlanBase::check(py::handle arguments) const {
  Call call;
  ArgumentFailure failure;
  if (read_operands(*this, arguments.ptr(), Keep::Call, call, failure)) return py::none();
  if (failure.operand.empty()) throw py::error_already_set();
  PyObject* error = make_argument_error(failure);
  if (!error) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(error);
}

py::object PlanBase::bind(py::handle self, py::handle workspace, py::handle arguments) const {
  Workspace memory;
  Call call;
  ArgumentFailure failure;
  py::list kept;
  Ref exported;
  if (!read_workspace(plan_, workspace.ptr(), memory, exported)) throw py::error_already_set();
  if (!read_operands(*this, arguments.ptr(), Keep::Export, call, failure)) {
    raise_failure(failure);
    throw py::error_already_set();
  }
  if (!workspace_apart(plan_, call.operands, memory)) throw py::error_already_set();
  // A snapshot of the operands: the argument object stays the caller's to change.
  kept.append(workspace);
  const auto keep = [&](const Ref& object) {
    if (object) kept.append(py::handle(object.get()));
  };
  keep(exported);
  for (int i = 0; i < plan_.operand_count; ++i) {
    keep(call.objects[i]);
    keep(call.exports[i]);
  }
  auto* bound = PyObject_GC_New(Launch, launch_type());
  if (!bound) throw py::error_already_set();
  bound->vectorcall = call_launch;
  bound->plan = self.inc_ref().ptr();
  bound->kept = kept.release().ptr();
  bound->gradients = call.gradients;
  bound->base = this;
  bound->operands = call.operands;
  bound->workspace = memory;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(bound));
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(bound));
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
      .def_property_readonly("sku", [](py::handle self) { return made(self).plan().kernel->sku; })
      .def_property_readonly("revision",
                             [](py::handle self) { return made(self).plan().kernel->revision; })
      .def_property_readonly("_device", [](py::handle self) { return made(self).plan().device; })
      .def(
          "workspace_size", [](py::handle self) { return made(self).plan().workspace; },
          "Bytes of workspace that run needs; 0 means that it takes None.");
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
