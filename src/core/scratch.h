// Workspace booking. A kernel books its pieces by one function that runs twice: without memory it
// counts, with memory it carves. So the size that is promised and the layout that is used cannot
// disagree. A size that no memory has does not wrap: it stays the largest number, which no
// selection takes.
#pragma once

#include <cstddef>
#include <limits>

#include "core/device.h"

namespace planq {

class Scratch {
 public:
  Scratch() = default;                                              // counting
  explicit Scratch(Workspace workspace) : base_(workspace.data) {}  // carving

  template <class T>
  T* take(std::size_t count) {
    std::byte* piece = base_ ? base_ + used_ : nullptr;
    book(count, sizeof(T));
    return reinterpret_cast<T*>(piece);
  }
  std::size_t bytes() const { return used_; }

 private:
  void book(std::size_t count, std::size_t size) {
    std::size_t bytes = 0, padded = 0;
    const bool wraps =
        __builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, kWorkspaceAlignment - 1, &padded) ||
        __builtin_add_overflow(used_, padded / kWorkspaceAlignment * kWorkspaceAlignment, &used_);
    if (wraps) used_ = std::numeric_limits<std::size_t>::max();
  }

  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace planq
