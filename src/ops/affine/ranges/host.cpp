// Ranges on the host: segments that are measured, and whose ends are stored.
#include "ops/affine/ranges/host.h"

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "host/simd.h"
#include "ops/affine/ranges/ends.h"
#include "ops/affine/ranges/segment_driver.h"

#define PLANQ_LOOPS "ops/affine/ranges/loops.h"
#include "host/instruction_sets.h"

namespace planq::host {

template <class T>
RangeLoops<Key<T>> range_loops(bool signs, bool finite) {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::range_loops<T>(signs, finite);
  if (level == Level::Avx2) return avx2::range_loops<T>(signs, finite);
#endif
  return baseline::range_loops<T>(signs, finite);
}

template RangeLoops<Key<math::Half>> range_loops<math::Half>(bool, bool);
template RangeLoops<Key<math::Bfloat16>> range_loops<math::Bfloat16>(bool, bool);
template RangeLoops<Key<float>> range_loops<float>(bool, bool);
template RangeLoops<Key<double>> range_loops<double>(bool, bool);

namespace {

// Writes ends. The operands of segments are the input, and an end for each RangeEnd.
template <class T>
class EndWriter {
 public:
  using Key = host::Key<T>;
  using C = math::Compute<T>;
  struct Batch {};
  static constexpr int kOperands = 5;
  static constexpr bool kReadsAgain = false;

  EndWriter(const RangeProblem& problem, const RangeOperands& operands)
      : signs_(!problem.symmetric()), saturate_(problem.saturate()), ends_(operands.ends) {}

  void measured(const KeyRanges<Key>& ranges, std::int64_t count, OffsetsOf<kOperands> at,
                const std::array<std::int64_t, kOperands>& stride, Batch&) const {
    for (std::int64_t i = 0; i < count; ++i) {
      write(ranges.low[i], ranges.high[i], at.at + 1);
      for (int end = 1; end < kOperands; ++end) at.at[end] += stride[end];
    }
  }
  void done() const {}

 private:
  // The value of a key. Symmetric keys are bit patterns already.
  C value_of(Key key) const {
    const Key bits =
        signs_ ? static_cast<Key>(key ^ ((key >> (sizeof(Key) * 8 - 1)) & kMagnitude<T>)) : key;
    return math::widen(math::bit_cast<T>(bits));
  }
  template <bool kHigh>
  void write_end(C value, bool none, const std::int64_t* at) const {
    constexpr int kOutput = kHigh ? RangeEnd::kHigh : RangeEnd::kLow;
    constexpr int kBefore = kHigh ? RangeEnd::kPreviousHigh : RangeEnd::kPreviousLow;
    const C* const before = static_cast<const C*>(ends_[kBefore].data);
    static_cast<C*>(ends_[kOutput].data)[at[kOutput]] = math::stored_end<kHigh>(
        value, none, before == nullptr ? nullptr : before + at[kBefore], saturate_);
  }
  void write(Key low, Key high, const std::int64_t* at) const {
    const bool none = signs_ ? low > high : high < 0;
    const bool poisoned =
        !none && (high > kInfinityKey<T> || (signs_ && low < static_cast<Key>(~kInfinityKey<T>)));
    const C top = poisoned ? math::canonical_nan<C>() : value_of(high);
    write_end<true>(top, none, at);
    if (signs_) write_end<false>(poisoned ? top : value_of(low), none, at);
  }

  const bool signs_, saturate_;
  const std::array<OperandView, 4>& ends_;
};

template <class T>
void measure(const RangeProblem& problem, const RangeOperands& operands, const Stream& stream) {
  const auto loops = range_loops<T>(!problem.symmetric(), problem.saturate());
  const RangeMeasure<Key<T>> measure = {loops, loops, !problem.symmetric()};
  SegmentOperand views[EndWriter<T>::kOperands] = {{&operands.input}};
  for (int end = 0; end < 4; ++end)
    views[1 + end] = {operands.ends[end].data ? &operands.ends[end] : nullptr, true};
  const EndWriter<T> writer(problem, operands);
  const SegmentDriver driver(writer, measure, operands.input.data, stream.threads);
  for_each_box(problem.shape, problem.scope, views, LineKind::Joined,
               [&](const auto& box) { driver.run(box); });
}

}  // namespace

void measure_ranges(const RangeProblem& problem, const RangeOperands& operands,
                    const Stream& stream) {
  switch (problem.input_dtype) {
    case DType::Float16:
      return measure<math::Half>(problem, operands, stream);
    case DType::BFloat16:
      return measure<math::Bfloat16>(problem, operands, stream);
    case DType::Float32:
      return measure<float>(problem, operands, stream);
    default:
      return measure<double>(problem, operands, stream);
  }
}

}  // namespace planq::host
