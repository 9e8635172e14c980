// Tensors as one sequence of elements, for operators whose segments go on across the ends of axes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/space.h"

namespace planq::host {

// The elements of a tensor in the order of its axes, as runs that follow one another in memory.
class FlatRuns {
 public:
  FlatRuns(const Shape& shape, const OperandView& view) {
    for (int i = 0; i < shape.rank; ++i) lines_.append({shape[i], 1, 0, {view.strides[i]}});
    lines_.merge();
    if (lines_.rank == 0 || lines_.axes[lines_.rank - 1].stride[0] != 1) return;
    length_ = lines_.axes[--lines_.rank].extent;
  }

  // Where an element is, and how many from it on follow one another.
  struct Run {
    std::int64_t offset, count;
  };
  Run run_at(std::int64_t element) const {
    const std::int64_t line = element / length_, skipped = element - line * length_;
    return {lines_.offsets(line).at[0] + skipped, length_ - skipped};
  }

  // Calls visit(offset, done, count) for the runs of [first, first + count).
  template <class Visit>
  void each_run(std::int64_t first, std::int64_t count, const Visit& visit) const {
    for (std::int64_t done = 0; done < count;) {
      const Run run = run_at(first + done);
      const std::int64_t taken = std::min(run.count, count - done);
      visit(run.offset, done, taken);
      done += taken;
    }
  }

  // The elements [first, first + count) side by side: where they are, or copied to `stage`.
  template <class T>
  const T* gathered(const T* data, std::int64_t first, std::int64_t count, T* stage) const {
    const Run run = run_at(first);
    if (run.count >= count) return data + run.offset;
    each_run(first, count, [&](std::int64_t offset, std::int64_t done, std::int64_t taken) {
      std::copy_n(data + offset, taken, stage + done);
    });
    return stage;
  }

 private:
  SpaceOf<1> lines_;
  std::int64_t length_ = 1;
};

}  // namespace planq::host
