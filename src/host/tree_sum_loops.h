// The loop of tree_sum.cpp, for one instruction set. No include guard: see instruction_sets.h.

namespace planq::host::PLANQ_LEVEL {

// Sums of neighbours. They are stored behind what is still to be read: 2 i >= i.
template <class C>
void add_neighbours(C* values, std::int64_t pairs) {
  std::int64_t i = 0;
  for (C sums[kPairs]; i + kPairs <= pairs; i += kPairs) {
    const C* const from = values + 2 * i;
    for (int k = 0; k < kPairs; ++k) sums[k] = from[2 * k] + from[2 * k + 1];
    for (int k = 0; k < kPairs; ++k) values[i + k] = sums[k];
  }
  for (; i < pairs; ++i) values[i] = values[2 * i] + values[2 * i + 1];
}

}  // namespace planq::host::PLANQ_LEVEL
