// How the tensors of a list share work: each is cut into parts of a fixed number of elements, and
// parts are numbered from the first tensor's on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/descriptor.h"

namespace planq::optimizer {

class ListParts {
 public:
  ListParts() = default;
  ListParts(const ShapeList& shapes, std::int64_t part_elements) : part_elements_(part_elements) {
    first_.reserve(static_cast<std::size_t>(shapes.count) + 1);
    elements_.reserve(static_cast<std::size_t>(shapes.count));
    for (const Shape& shape : shapes) {
      const std::int64_t elements = shape.elements();
      elements_.push_back(elements);
      first_.push_back(first_.back() + elements / part_elements + (elements % part_elements != 0));
    }
  }

  std::int64_t tensors() const { return static_cast<std::int64_t>(elements_.size()); }
  std::int64_t elements(std::int64_t tensor) const {
    return elements_[static_cast<std::size_t>(tensor)];
  }
  // The first part of a tensor; of the number of tensors, the number of all parts.
  std::int64_t first(std::int64_t tensor) const { return first_[static_cast<std::size_t>(tensor)]; }
  std::int64_t count() const { return first_.back(); }

  // Calls visit(tensor, first element, elements, part) for parts [from, to).
  template <class Visit>
  void each(std::int64_t from, std::int64_t to, const Visit& visit) const {
    auto tensor = std::upper_bound(first_.begin(), first_.end(), from) - first_.begin() - 1;
    for (std::int64_t part = from; part < to; ++part) {
      while (part >= first(tensor + 1)) ++tensor;
      const std::int64_t at = (part - first(tensor)) * part_elements_;
      visit(tensor, at, std::min(part_elements_, elements(tensor) - at), part);
    }
  }

 private:
  std::int64_t part_elements_ = 1;
  std::vector<std::int64_t> first_ = {0}, elements_;
};

}  // namespace planq::optimizer
