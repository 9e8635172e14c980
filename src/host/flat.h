// Where the elements of a flat tensor lie on the host; see core/flat.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/index_space.h"

namespace planq::host {

// The elements of a tensor in the order of its axes, as spans that follow one another in memory.
class FlatSpans {
 public:
  FlatSpans(const Shape& shape, const OperandView& view) {
    for (int i = 0; i < shape.rank; ++i) lines_.append({shape[i], 1, 0, {view.strides[i]}});
    lines_.merge();
    if (lines_.rank == 0 || lines_.axes[lines_.rank - 1].stride[0] != 1) return;
    length_ = lines_.axes[--lines_.rank].extent;
  }

  // Where an element is, and how many from it on follow one another.
  struct Span {
    std::int64_t offset, count;
  };
  Span span_at(std::int64_t element) const {
    const std::int64_t line = element / length_, skipped = element - line * length_;
    return {lines_.offsets(line).at[0] + skipped, length_ - skipped};
  }

  // Calls visit(offset, done, count) for the spans of [first, first + count).
  template <class Visit>
  void each_span(std::int64_t first, std::int64_t count, const Visit& visit) const {
    for (std::int64_t done = 0; done < count;) {
      const Span span = span_at(first + done);
      const std::int64_t taken = std::min(span.count, count - done);
      visit(span.offset, done, taken);
      done += taken;
    }
  }

  // The elements [first, first + count) side by side: where they are, or copied to `stage`.
  template <class T>
  const T* gathered(const T* data, std::int64_t first, std::int64_t count, T* stage) const {
    const Span span = span_at(first);
    if (span.count >= count) return data + span.offset;
    each_span(first, count, [&](std::int64_t offset, std::int64_t done, std::int64_t taken) {
      std::copy_n(data + offset, taken, stage + done);
    });
    return stage;
  }

 private:
  IndexSpaceOf<1> lines_;
  std::int64_t length_ = 1;
};

}  // namespace planq::host
