// Native vocabularies and the Python enumerations of the same names: VOCABULARIES of
// planq/dtypes.py.
#pragma once

#include <pybind11/pybind11.h>

#include <string_view>
#include <vector>

#include "core/vocabulary.h"

namespace planq::python {

// The members of a Python enumeration, by the enumerator that each of them is.
class Members {
 public:
  // Made at the first call for a vocabulary and kept. Throws TypeError where the Python class has
  // other names, or the same in another order, than the core.
  static const Members& of(const Vocabulary& vocabulary);

  // The enumerator of a member, of its name, or of what the class can parse (a torch or NumPy
  // dtype); throws DescriptorError for anything else.
  std::uint8_t read(std::string_view field, pybind11::handle value) const;
  // The member; None for an enumerator without a name.
  pybind11::object operator[](std::uint8_t enumerator) const;

 private:
  explicit Members(const Vocabulary& vocabulary);
  int find(PyObject* member) const;

  std::string_view type_;
  std::vector<pybind11::object> members_;
  pybind11::dict by_name_;  // lower-case name -> enumerator
  pybind11::object parse_;  // (value, field) -> member
  // Other libraries' dtypes that were parsed before. They live as long as their libraries do.
  mutable std::vector<std::pair<pybind11::object, std::uint8_t>> foreign_;
};

// Throws DescriptorError.
[[noreturn]] void refuse(std::string_view field, const std::string& text);
// A value in a message, in Python's words, which are bounded and never raise: it is anybody's.
std::string shown(pybind11::handle value);

// Looks a name up among an enumeration's; -1 where it is none.
int enumerator_named(const Vocabulary& vocabulary, PyObject* name);
// The same; throws DescriptorError naming the field.
template <class E>
E enumerator(std::string_view field, pybind11::handle name) {
  const int found = enumerator_named(kVocabulary<E>, name.ptr());
  if (found < 0) refuse(field, "unknown value " + shown(name));
  return static_cast<E>(found);
}

}  // namespace planq::python
