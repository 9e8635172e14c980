#include "host/tree_sum.h"

#include "host/simd.h"

namespace planq::host {
namespace {

// Sums that are kept in registers before the first of them is stored.
constexpr int kPairs = 32;

}  // namespace
}  // namespace planq::host

#define PLANQ_LOOPS "host/tree_sum_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {
namespace {

template <class C>
using AddNeighbours = void (*)(C* values, std::int64_t pairs);

template <class C>
AddNeighbours<C> add_neighbours() {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::add_neighbours<C>;
  if (level == Level::Avx2) return avx2::add_neighbours<C>;
#endif
  return baseline::add_neighbours<C>;
}

}  // namespace

// A number without a neighbour goes up as it is, as +0 leaves it.
template <class C>
C tree_sum_over(C* values, std::int64_t count) {
  const AddNeighbours<C> add = add_neighbours<C>();
  for (; count > 1; count -= count / 2) {
    add(values, count / 2);
    if (count % 2 != 0) values[count / 2] = values[count - 1];
  }
  return count > 0 ? values[0] : C{0};
}

template float tree_sum_over(float*, std::int64_t);
template double tree_sum_over(double*, std::int64_t);

}  // namespace planq::host
