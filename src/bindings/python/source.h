// Python objects as values of core/field_reader.h.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <string_view>
#include <vector>

#include "bindings/python/ref.h"
#include "core/field_reader.h"

namespace planq::python {

// planq.Scope and planq.Dim.
struct Classes {
  pybind11::object scope = pybind11::module_::import("planq.scope").attr("Scope");
  pybind11::object dim = pybind11::module_::import("planq.dim").attr("Dim");
};
const Classes& classes();

// A value in a message, in Python's words, which are bounded and never raise: it is anybody's.
std::string shown(pybind11::handle value);

// Values are anybody's objects, whose own code may raise. A TypeError says that a value is none of
// a kind; everything else is thrown.
class PythonSource {
 public:
  using Value = PyObject*;

  class Items {
   public:
    std::size_t size() const { return static_cast<std::size_t>(PyTuple_GET_SIZE(tuple_.get())); }
    Value operator[](std::size_t at) const {
      return PyTuple_GET_ITEM(tuple_.get(), static_cast<Py_ssize_t>(at));
    }

   private:
    friend class PythonSource;
    Ref tuple_;
  };

  // Set to true, it stays so while what is read has the types that an attribute of a descriptor
  // has: tuples, integers, Scope and Dim themselves. Such a value need not be made again.
  bool plain = true;

  bool is_none(Value value) const { return value == Py_None; }
  bool flag(Value value, bool& flag) const {
    flag = value == Py_True;
    return PyBool_Check(value);
  }
  Fit integer(Value value, std::int64_t& integer);
  Fit number(Value value, double& number) const;
  bool text(Value value, std::string& text) const;
  int member(const Vocabulary& vocabulary, Value value) const;
  bool items(Value value, Items& items);
  bool scope(Value value, WideScope& scope);
  bool is_dim(Value value) const {
    return PyDict_Check(value) ||
           Py_IS_TYPE(value, reinterpret_cast<PyTypeObject*>(classes().dim.ptr()));
  }
  bool dim(Value value, Value& name, Value& max);
  bool object(Value value, Value& object);
  bool find(Value object, std::string_view name, Value& found);
  template <class Visit>
  void for_each_name(Value object, const Visit& visit) {
    const Ref names(PyDict_Keys(object));
    if (!names) throw pybind11::error_already_set();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.get()); ++i)
      if (!visit(PyList_GET_ITEM(names.get(), i))) return;
  }
  bool is_identifier(const std::string& name) const;
  std::string field_of(Value name) const;
  std::string shown(Value value) const { return python::shown(value); }
  std::string hint(Value value, const std::vector<std::string>& names) const;

 private:
  // Keeps an object as long as the source, whatever becomes of what it was found in.
  Value keep(PyObject* owned);

  std::vector<Ref> kept_;
};

}  // namespace planq::python
