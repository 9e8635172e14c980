#include "bindings/python/torch_call.h"

#include <pybind11/stl.h>
#include <structmember.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/python/errors.h"
#include "bindings/python/native.h"
#include "bindings/python/plan.h"
#include "bindings/python/ref.h"
#include "bindings/python/stream.h"
#include "bindings/python/tensor.h"

namespace planq::python {

namespace py = pybind11;

namespace {

constexpr std::size_t kMostArguments = 128;

// Where an operand is among the arguments, by value and in memory; -1: nowhere.
struct Place {
  int value, memory;
};

// An overload's arguments, as planq.torch lays them out.
struct Layout {
  py::tuple defaults;           // all arguments; those without a default have None
  std::vector<Place> operands;  // in the order of the args
  std::vector<int> told;        // tensors, and lists, that tell fields
  std::vector<int> tensors;     // all of them
  std::vector<int> values;      // fields
  std::vector<int> written;
  int workspace;
  bool allocates, single;  // makes its results; the one result is no list
  std::size_t most;        // entries
  py::object find;    // (arguments, policy) -> (plan, workspace's maker, results' makers, refuse)
  py::list policies;  // empty until the process has had a policy
  py::object policy;  // () -> the one in force, the same object for equal ones; None: there is none
  py::object threads;  // () -> of the host
  py::object stream;   // (device) -> handle
  py::object mark;     // (tensors): they were written
  py::dict forward;    // torch's module of forward-mode differentiation
  py::object level;    // the name that it has its level by; below 0: there is none
  py::object refuse;   // (arguments): where a level's derivative would be lost
};

// What a call is told apart by: extents, dtypes and devices of what tells fields, fields, and the
// policy that is in force.
struct Key {
  std::vector<std::int64_t> facts;
  Ref policy;                                    // compared by identity; null: there is none
  std::array<PyObject*, kMostArguments> values;  // borrowed
  std::size_t count = 0;
  std::uint64_t hash = 0;
};

struct Entry {
  std::vector<std::int64_t> facts;
  Ref policy;
  std::vector<Ref> values;
  Ref plan;
  const PlanBase* base;
  Ref workspace;  // makes it; None: nothing is needed
  Ref refuse;     // called before a run; None: there is no reason to refuse one
  std::vector<std::pair<int, Ref>> results;  // operand, and what makes it
};

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

// A call of an overload: a Python object whose callers give arguments by position. What torch has
// registered lives for ever, so it takes no part in garbage collection.
struct TorchCall {
  PyObject_HEAD vectorcallfunc vectorcall;
  Layout* layout;
  std::unordered_multimap<std::uint64_t, std::shared_ptr<const Entry>>* entries;
};

class Caller {
 public:
  Caller(TorchCall& self, PyObject* const* arguments, std::size_t count)
      : self_(self), layout_(*self.layout) {
    const std::size_t all = layout_.defaults.size();
    for (std::size_t i = 0; i < all; ++i)
      given_[i] = i < count ? arguments[i] : PyTuple_GET_ITEM(layout_.defaults.ptr(), i);
  }

  PyObject* call() {
    if (!refuse_tangents() || !read_key()) return nullptr;
    std::shared_ptr<const Entry> entry = known();
    if (!entry) entry = found();
    if (!entry) return nullptr;
    if (entry->refuse.get() != Py_None && !Ref(PyObject_CallNoArgs(entry->refuse.get())))
      return nullptr;
    Stream stream;
    return read_stream_of(stream) ? run(*entry, stream) : nullptr;
  }

 private:
  PyObject* at(int place) const { return given_[static_cast<std::size_t>(place)]; }

  PyObject* whole() const {
    const auto count = static_cast<Py_ssize_t>(layout_.defaults.size());
    PyObject* arguments = PyTuple_New(count);
    for (Py_ssize_t i = 0; arguments && i < count; ++i)
      PyTuple_SET_ITEM(arguments, i, Py_NewRef(at(static_cast<int>(i))));
    return arguments;
  }

  // Forward mode has a level only inside of a `with` of its user.
  bool refuse_tangents() const {
    PyObject* level = PyDict_GetItemWithError(layout_.forward.ptr(), layout_.level.ptr());
    if (!level || PyLong_AsLong(level) < 0) return !PyErr_Occurred();
    const Ref arguments(whole());
    return arguments && Ref(PyObject_CallOneArg(layout_.refuse.ptr(), arguments.get()));
  }

  // --- The key

  bool read_key() {
    key_.facts.reserve(32);
    for (const int place : layout_.told)
      if (!add_facts(at(place))) return false;
    if (!has_device_)
      for (const int place : layout_.tensors)
        if (!has_device_ && !add_device(at(place))) return false;
    key_.facts.push_back(on_cuda_ ? device_ : -1);
    for (const std::int64_t fact : key_.facts)
      key_.hash = mixed(key_.hash, static_cast<std::uint64_t>(fact));
    for (const int place : layout_.values)
      if (!add_value(place)) return false;
    return add_policy();
  }

  // A process that never had one asks for none.
  bool add_policy() {
    if (PyList_GET_SIZE(layout_.policies.ptr()) == 0) return true;
    Ref policy(PyObject_CallNoArgs(layout_.policy.ptr()));
    if (!policy) return false;
    if (policy.get() == Py_None) return true;
    key_.hash = mixed(key_.hash, reinterpret_cast<std::uintptr_t>(policy.get()));
    key_.policy = std::move(policy);
    return true;
  }

  bool add_facts(PyObject* object) {
    if (PyList_Check(object)) {
      key_.facts.push_back(-2 - PyList_GET_SIZE(object));
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i)
        if (!add_facts(PyList_GET_ITEM(object, i))) return false;
      return true;
    }
    if (object == Py_None) {
      key_.facts.push_back(-1);
      return true;
    }
    TensorView view;
    if (!read(object, view)) return false;
    key_.facts.push_back(view.ndim);
    key_.facts.push_back(static_cast<std::int64_t>(view.dtype));
    key_.facts.insert(key_.facts.end(), view.shape.begin(), view.shape.begin() + view.ndim);
    return true;
  }

  bool add_device(PyObject* object) {
    if (PyList_Check(object))
      return PyList_GET_SIZE(object) == 0 || add_device(PyList_GET_ITEM(object, 0));
    TensorView view;
    return object == Py_None || read(object, view);
  }

  // What cannot be read has no device, and the plan says why.
  bool read(PyObject* object, TensorView& view) {
    Ref exported;
    const Intake intake = read_tensor(object, Keep::Call, view, exported);
    if (intake != Intake::Ok) return drop_exception();
    if (!has_device_) on_cuda_ = view.memory == Memory::Cuda;
    if (!has_device_) device_ = view.device;
    has_device_ = true;
    return true;
  }

  bool add_value(int place) {
    PyObject* value = at(place);
    key_.values[key_.count++] = value;
    if (value == PyTuple_GET_ITEM(layout_.defaults.ptr(), place)) return true;
    if (PyList_Check(value)) {
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i)
        if (!add_hash(PyList_GET_ITEM(value, i))) return false;
      return true;
    }
    return add_hash(value);
  }
  bool add_hash(PyObject* value) {
    const Py_hash_t hash = PyObject_Hash(value);
    key_.hash = mixed(key_.hash, static_cast<std::uint64_t>(hash));
    return hash != -1 || !PyErr_Occurred();
  }

  // --- The entry

  std::shared_ptr<const Entry> known() const {
    const auto [first, last] = self_.entries->equal_range(key_.hash);
    for (auto entry = first; entry != last; ++entry)
      if (is_of(*entry->second)) return entry->second;
    return nullptr;
  }
  bool is_of(const Entry& entry) const {
    if (entry.policy.get() != key_.policy.get() || entry.facts != key_.facts) return false;
    for (std::size_t i = 0; i < key_.count; ++i) {
      PyObject *ours = key_.values[i], *theirs = entry.values[i].get();
      if (ours != theirs && PyObject_RichCompareBool(ours, theirs, Py_EQ) != 1) {
        PyErr_Clear();
        return false;
      }
    }
    return true;
  }

  // Of a call that was not seen before, or not lately.
  std::shared_ptr<const Entry> found() {
    const Ref arguments(whole());
    if (!arguments) return nullptr;
    PyObject* policy = key_.policy ? key_.policy.get() : Py_None;
    const Ref answer(
        PyObject_CallFunctionObjArgs(layout_.find.ptr(), arguments.get(), policy, nullptr));
    if (!answer) return nullptr;
    auto entry = std::make_shared<Entry>();
    entry->facts = key_.facts;
    if (key_.policy) entry->policy = Ref(Py_NewRef(policy));
    for (std::size_t i = 0; i < key_.count; ++i) {
      PyObject* value = key_.values[i];  // a list is its caller's to change
      entry->values.emplace_back(PyList_Check(value) ? PySequence_List(value) : Py_NewRef(value));
    }
    const auto part = [&](Py_ssize_t i) { return PyTuple_GET_ITEM(answer.get(), i); };
    entry->plan = Ref(Py_NewRef(part(0)));
    entry->base = native<PlanBase>(part(0));
    entry->workspace = Ref(Py_NewRef(part(1)));
    for (const py::handle each : py::reinterpret_borrow<py::tuple>(part(2))) {
      const auto made = py::reinterpret_borrow<py::tuple>(each);
      entry->results.emplace_back(py::cast<int>(made[0]),
                                  Ref(Py_NewRef(PyTuple_GET_ITEM(each.ptr(), 1))));
    }
    entry->refuse = Ref(Py_NewRef(part(3)));
    if (self_.entries->size() >= layout_.most) self_.entries->clear();
    self_.entries->emplace(key_.hash, entry);
    return entry;
  }

  // --- The run

  bool read_stream_of(Stream& stream) const {
    stream.backend = on_cuda_ ? Backend::Cuda : Backend::Host;
    if (!on_cuda_) {
      const Ref threads(PyObject_CallNoArgs(layout_.threads.ptr()));
      if (threads) stream.threads = static_cast<std::int32_t>(PyLong_AsLong(threads.get()));
      return !PyErr_Occurred();
    }
    stream.device = device_;
    const Ref device(PyLong_FromLong(device_));
    const Ref handle(device ? PyObject_CallOneArg(layout_.stream.ptr(), device.get()) : nullptr);
    if (handle) stream.handle = PyLong_AsVoidPtr(handle.get());
    return !PyErr_Occurred();
  }

  PyObject* run(const Entry& entry, const Stream& stream) {
    std::array<PyObject*, kMaxOperands> operands{};
    for (std::size_t i = 0; i < layout_.operands.size(); ++i) {
      const auto [value, memory] = layout_.operands[i];
      const bool stored = memory >= 0 && at(memory) != Py_None;
      operands[i] = stored ? at(memory) : value >= 0 ? at(value) : Py_None;
    }
    Ref made(layout_.allocates ? PyList_New(0) : Py_NewRef(Py_None));
    for (const auto& [index, maker] : entry.results)
      if (!made || !make_result(entry, index, maker, made.get(), operands)) return nullptr;
    Ref borrowed, workspace;
    if (!find_workspace(entry, borrowed, workspace)) return nullptr;
    const Ref done(
        run_operands(entry.plan.get(), *entry.base, stream, workspace.get(), operands.data()));
    if (!done || !mark_written()) return nullptr;
    if (!layout_.single) return made.release();
    return Py_NewRef(PyList_GET_ITEM(made.get(), 0));
  }

  // A result, or the list of one that is a list; both are flat in what is returned.
  static bool make_result(const Entry& entry, int index, const Ref& maker, PyObject* made,
                          std::array<PyObject*, kMaxOperands>& operands) {
    PyObject*& operand = operands[static_cast<std::size_t>(index)];
    if (operand != Py_None) {
      raise_argument_error({operand_name(entry.base->plan(), index), "None: it is a result",
                            Py_TYPE(operand)->tp_name, ""});
      return false;
    }
    const Ref result(PyObject_CallNoArgs(maker.get()));
    if (!result) return false;
    operand = result.get();  // which the list holds
    if (!PyList_Check(operand)) return PyList_Append(made, operand) == 0;
    const Py_ssize_t end = PyList_GET_SIZE(made);
    return PyList_SetSlice(made, end, end, operand) == 0;
  }

  // The caller's, or one that is made: aligned inside of `borrowed`.
  bool find_workspace(const Entry& entry, Ref& borrowed, Ref& workspace) const {
    PyObject* given = layout_.workspace < 0 ? Py_None : at(layout_.workspace);
    if (given != Py_None || entry.workspace.get() == Py_None) {
      workspace = Ref(Py_NewRef(given));
      return true;
    }
    borrowed = Ref(PyObject_CallNoArgs(entry.workspace.get()));
    TensorView view;
    Ref exported;
    if (!borrowed || read_tensor(borrowed.get(), Keep::Call, view, exported) != Intake::Ok)
      return false;
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    const std::uintptr_t aligned = (address + kWorkspaceAlignment - 1) & ~(kWorkspaceAlignment - 1);
    const auto bytes = static_cast<std::uint64_t>(view.shape[0]) - (aligned - address);
    workspace = Ref(Py_BuildValue("KK", static_cast<unsigned long long>(aligned),
                                  static_cast<unsigned long long>(bytes)));
    return static_cast<bool>(workspace);
  }

  bool mark_written() const {
    if (layout_.written.empty()) return true;
    // A list of this size, which mostly needs no other.
    const Ref marked(PyList_New(static_cast<Py_ssize_t>(layout_.written.size())));
    if (!marked) return false;
    Py_ssize_t count = 0;
    for (const int place : layout_.written)
      if (at(place) != Py_None && !PyList_Check(at(place)))
        PyList_SET_ITEM(marked.get(), count++, Py_NewRef(at(place)));
    if (PyList_SetSlice(marked.get(), count, PyList_GET_SIZE(marked.get()), nullptr) != 0)
      return false;
    for (const int place : layout_.written)
      if (PyList_Check(at(place)) && PyList_SetSlice(marked.get(), count, count, at(place)) != 0)
        return false;
    return static_cast<bool>(Ref(PyObject_CallOneArg(layout_.mark.ptr(), marked.get())));
  }

  TorchCall& self_;
  const Layout& layout_;
  std::array<PyObject*, kMostArguments> given_;  // borrowed
  Key key_;
  bool has_device_ = false, on_cuda_ = false;
  int device_ = 0;
};

PyObject* call(PyObject* self, PyObject* const* arguments, std::size_t flags, PyObject* keywords) {
  auto& call = *reinterpret_cast<TorchCall*>(self);
  const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flags));
  if (count > call.layout->defaults.size() || (keywords && PyTuple_GET_SIZE(keywords) != 0)) {
    PyErr_SetString(PyExc_TypeError, "expected the arguments of the schema, by position");
    return nullptr;
  }
  return Caller(call, arguments, count).call();
}

void free_call(PyObject* self) {
  auto* call = reinterpret_cast<TorchCall*>(self);
  PyTypeObject* type = Py_TYPE(self);
  delete call->entries;
  delete call->layout;
  type->tp_free(self);
  Py_DECREF(type);
}

Py_ssize_t count_entries(PyObject* self) {
  return static_cast<Py_ssize_t>(reinterpret_cast<TorchCall*>(self)->entries->size());
}

PyObject* forget(PyObject* self, PyObject*) {
  reinterpret_cast<TorchCall*>(self)->entries->clear();
  Py_RETURN_NONE;
}

PyTypeObject* call_type() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(TorchCall, vectorcall), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr}};
  static PyMethodDef methods[] = {{"forget", forget, METH_NOARGS, "Drops every entry."},
                                  {nullptr, nullptr, 0, nullptr}};
  static PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(free_call)},
                                {Py_tp_members, members},
                                {Py_tp_methods, methods},
                                {Py_sq_length, reinterpret_cast<void*>(count_entries)},
                                {0, nullptr}};
  static PyType_Spec spec = {
      "planq._core.TorchCall", sizeof(TorchCall), 0,
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  static auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type;
}

py::object make_call(const py::dict& given) {
  const auto places = [&](const char* name) { return py::cast<std::vector<int>>(given[name]); };
  auto layout = std::make_unique<Layout>();
  layout->defaults = given["defaults"];
  for (const auto& [value, memory] : py::cast<std::vector<std::pair<int, int>>>(given["operands"]))
    layout->operands.push_back({value, memory});
  layout->told = places("told");
  layout->tensors = places("tensors");
  layout->values = places("values");
  layout->written = places("written");
  layout->workspace = py::cast<int>(given["workspace"]);
  layout->allocates = py::cast<bool>(given["allocates"]);
  layout->single = py::cast<bool>(given["single"]);
  layout->most = py::cast<std::size_t>(given["most"]);
  layout->find = given["find"];
  layout->policies = given["policies"];
  layout->policy = given["policy"];
  layout->threads = given["threads"];
  layout->stream = given["stream"];
  layout->mark = given["mark"];
  layout->forward = given["forward"];
  layout->level = given["level"];
  layout->refuse = given["refuse"];
  if (layout->defaults.size() > kMostArguments || layout->operands.size() > kMaxOperands)
    throw py::type_error("an overload has too many arguments");
  auto* call_object = PyObject_New(TorchCall, call_type());
  if (!call_object) throw py::error_already_set();
  call_object->vectorcall = call;
  call_object->layout = layout.release();
  call_object->entries = new std::unordered_multimap<std::uint64_t, std::shared_ptr<const Entry>>;
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(call_object));
}

}  // namespace

void define_torch_call(py::module_& module) { module.def("torch_call", make_call); }

}  // namespace planq::python
