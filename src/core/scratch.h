// Workspace booking. A row books its pieces by one function that runs twice: without memory it
// counts, with memory it carves. So the size that is promised and the layout that is used cannot
// disagree.
#pragma once

#include <cstddef>

#include "core/device.h"

namespace planq {

class Scratch {
 public:
  Scratch() = default;                                              // counting
  explicit Scratch(Workspace workspace) : base_(workspace.data) {}  // carving

  template <class T>
  T* take(std::size_t count) {
    std::byte* piece = base_ ? base_ + used_ : nullptr;
    used_ +=
        (count * sizeof(T) + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    return reinterpret_cast<T*>(piece);
  }
  std::size_t bytes() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace planq
