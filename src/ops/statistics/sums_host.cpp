#include "ops/statistics/sums_host.h"

#include <algorithm>
#include <numeric>

#include "host/pieces.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "host/tree_sum.h"

namespace planq::host {
namespace {

// Leaves that are worth waking a thread for.
constexpr std::int64_t kGrain = 64;

template <class T>
using StoredBits =
    std::conditional_t<sizeof(T) == 2, std::uint16_t, typename math::Ieee<math::Compute<T>>::Bits>;

template <class T>
struct SumLoops {
  using C = math::Compute<T>;
  using Terms = void (*)(const T* x, std::int64_t count, C* to);
  Terms squares, magnitudes;
  C (*largest)(const T* x, std::int64_t count);
};

}  // namespace
}  // namespace planq::host

#define PLANQ_LOOPS "ops/statistics/sums_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {
namespace {

template <class T>
const SumLoops<T>& sum_loops() {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::kSumLoops<T>;
  if (level == Level::Avx2) return avx2::kSumLoops<T>;
#endif
  return baseline::kSumLoops<T>;
}

template <class C>
C larger(C a, C b) {
  return math::magnitude_bits(a) > math::magnitude_bits(b) ? a : b;
}

}  // namespace

template <class T>
math::Compute<T> measure_tensor(Measure measure, const OperandView& input, const Shape& shape,
                                math::Compute<T>* leaves, int threads) {
  using C = math::Compute<T>;
  const ElementLayout layout = element_layout(shape, Scope{}, {ElementOperand{&input}});
  const std::int64_t elements = layout.elements(), count = sum_leaves(elements);
  const bool is_sum = measure != Measure::LargestMagnitude;
  const SumLoops<T>& loops = sum_loops<T>();
  const auto fill = measure == Measure::SquareSum ? loops.squares : loops.magnitudes;
  parallel_for(threads, count, kGrain, [&](std::int64_t from, std::int64_t to) {
    C terms[math::kSumLeaf];
    for (std::int64_t leaf = from; leaf < to; ++leaf) {
      const std::int64_t first = leaf * math::kSumLeaf;
      const std::int64_t last = std::min(first + math::kSumLeaf, elements);
      C largest{0};
      each_piece(layout, first, last,
                 [&](const ElementOffsets& at, std::int64_t length, std::int64_t place) {
                   const T* const x = static_cast<const T*>(input.data) + at.at[0];
                   if (is_sum)
                     fill(x, length, terms + place);
                   else
                     largest = larger(largest, loops.largest(x, length));
                 });
      leaves[leaf] = is_sum ? tree_sum_over(terms, last - first) : largest;
    }
  });
  return is_sum ? tree_sum_over(leaves, count)
                : std::accumulate(leaves, leaves + count, C{0}, larger<C>);
}

#define PLANQ_MEASURE(T)                                                                 \
  template math::Compute<T> measure_tensor<T>(Measure, const OperandView&, const Shape&, \
                                              math::Compute<T>*, int);
PLANQ_MEASURE(math::Half)
PLANQ_MEASURE(math::Bfloat16)
PLANQ_MEASURE(float)
PLANQ_MEASURE(double)
#undef PLANQ_MEASURE

}  // namespace planq::host
