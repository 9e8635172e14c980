// Native vocabularies and the Python enumerations of the same names: VOCABULARIES of
// planq/dtypes.py.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/vocabulary.h"

namespace planq::python {

// Throws DescriptorError.
[[noreturn]] void refuse(const Fault& fault);

// The members of a Python enumeration, by the enumerator that each of them is.
class Members {
 public:
  // Both are made at the first call and kept. The first throws TypeError where the Python class has
  // other names, or the same in another order, than the core.
  static const Members& of(const Vocabulary& vocabulary);
  static const Members& of(pybind11::handle type);

  // The enumerator of a member, or of its name; of a torch or NumPy dtype, where it is those of
  // DType. -1: the value is none of them.
  int find(pybind11::handle value) const;
  // The same; throws DescriptorError naming the field.
  std::uint8_t read(std::string_view field, pybind11::handle value) const;
  // The member; None for an enumerator without a name.
  pybind11::object operator[](std::uint8_t enumerator) const;

 private:
  Members(const Vocabulary& vocabulary, pybind11::handle type);
  int find_foreign(pybind11::handle value) const;

  Vocabulary vocabulary_;
  pybind11::handle type_;
  std::vector<pybind11::object> members_;
  pybind11::object name_of_dtype_;  // of DType alone: the name of another library's
  // Other libraries' dtypes that were read before. They live as long as their libraries do.
  mutable std::vector<std::pair<pybind11::object, int>> foreign_;
};

// The enumerator of a member of E or of its name; throws DescriptorError naming the field.
template <class E>
E enumerator(std::string_view field, pybind11::handle value) {
  return static_cast<E>(Members::of(kVocabulary<E>).read(field, value));
}

}  // namespace planq::python
