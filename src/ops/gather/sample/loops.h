// The walks of a row, for one instruction set: see host.cpp. No include guard: see
// host/instruction_sets.h.

#include "ops/gather/largest_loops.h"

namespace planq::host::PLANQ_LEVEL {

// Calls visit(measure, order, index), by rising indices, for the elements whose orders are from
// `least` to `most`. Groups that have none are passed over as a whole. Measures are integers.
template <class T, class Measure, class Visit>
void visit_elements(const T* row, std::int64_t length, std::int32_t least, std::int32_t most,
                    const Measure& measure, const Visit& visit) {
  float values[sample::kGroup];
  std::int32_t orders[sample::kGroup];
  for (std::int64_t at = 0; at < length; at += sample::kGroup) {
    const std::int64_t count = std::min(sample::kGroup, length - at);
    widen<T>(row + at, count, values);
    std::int32_t any = 0;
    for (std::int64_t i = 0; i < count; ++i) orders[i] = gather::order_of(values[i]);
    for (std::int64_t i = 0; i < count; ++i) any |= (orders[i] >= least) & (orders[i] <= most);
    if (any == 0) continue;
    for (std::int64_t i = 0; i < count; ++i) values[i] = measure(values[i]);
    for (std::int64_t i = 0; i < count; ++i)
      if (orders[i] >= least && orders[i] <= most)
        visit(static_cast<std::uint64_t>(values[i]), orders[i], static_cast<std::int32_t>(at + i));
  }
}

// What elements weigh that a cut and min_p leave: two integers of 20 bits each, as vectors have no
// conversions to 64 bits everywhere. The upper one may be 2^20.
struct ChunkWeights {
  std::int32_t high[gather::kChunk], low[gather::kChunk];

  std::uint64_t at(std::int64_t i) const {
    return (static_cast<std::uint64_t>(high[i]) << 20) + static_cast<std::uint64_t>(low[i]);
  }
};

// Of elements `at` to `at + count` of a row. Their sum.
template <class T>
std::uint64_t weigh_chunk(const T* row, std::int64_t at, std::int64_t count,
                          const sample::Drawer& by, ChunkWeights& weights) {
  float values[gather::kChunk];
  std::int32_t orders[gather::kChunk];
  widen<T>(row + at, count, values);
  std::int32_t largest = std::numeric_limits<std::int32_t>::min();
  for (std::int64_t i = 0; i < count; ++i) orders[i] = gather::order_of(values[i]);
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, orders[i]);
  if (largest < by.cut.order) return 0;
  const sample::Drawer own = by;
  const auto first = static_cast<std::int32_t>(at);
  for (std::int64_t i = 0; i < count; ++i) values[i] = own.weigher.probability(values[i]) * 0x1p20f;
  const float least = own.min_p * 0x1p20f;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = first + static_cast<std::int32_t>(i);
    const bool is_kept = (values[i] >= least) & own.cut.has(orders[i], index);
    const float kept = math::detail::select(is_kept, values[i], 0.0f);
    const auto high = static_cast<std::int32_t>(kept);
    weights.high[i] = high;
    weights.low[i] = static_cast<std::int32_t>((kept - static_cast<float>(high)) * 0x1p20f);
  }
  std::int32_t highs = 0, lows = 0;  // no more than 2^29
  for (std::int64_t i = 0; i < count; ++i) highs += weights.high[i];
  for (std::int64_t i = 0; i < count; ++i) lows += weights.low[i];
  return (static_cast<std::uint64_t>(highs) << 20) + static_cast<std::uint64_t>(lows);
}

// Of elements first to last.
template <class T>
std::uint64_t weigh(const T* row, std::int64_t first, std::int64_t last, const sample::Drawer& by) {
  ChunkWeights weights;
  std::uint64_t sum = 0;
  for (std::int64_t at = first; at < last; at += gather::kChunk)
    sum += weigh_chunk<T>(row, at, std::min(gather::kChunk, last - at), by, weights);
  return sum;
}

// The elements of a cut by digits of their orders, the highest digit first. It finds the shortest
// prefix of the cut whose measure, which is the sum of its elements' measures, is not below a goal.
template <class T, class Measure>
class PrefixFinder {
 public:
  PrefixFinder(const T* row, std::int64_t length, sample::Cut cut, const Measure& measure)
      : row_(row), length_(length), cut_(cut), measure_(measure) {}

  // Whether the elements from `least` on reach the goal; then `found` is the prefix.
  bool find(std::int32_t least, std::uint64_t goal, sample::Cut& found) {
    least_ = std::max(least, cut_.order);
    most_ = std::numeric_limits<std::int32_t>::max();
    std::uint32_t prefix = 0;
    for (int from = 32; from > 0;) {
      const int shift = std::max(from - kDigitBits, 0);
      fill_bins(shift, (1u << (from - shift)) - 1);
      const int bin = bin_of(goal);
      if (bin < 0) return false;
      prefix |= static_cast<std::uint32_t>(bin) << shift;
      least_ = sample::order_in(prefix);
      most_ = sample::order_in(prefix | ((1u << shift) - 1));
      from = shift;
    }
    found = {least_, last_of_equal(goal)};
    return true;
  }

 private:
  static constexpr int kDigitBits = 11, kBins = 1 << kDigitBits;

  void fill_bins(int shift, std::uint32_t mask) {
    std::fill_n(bins_, kBins, 0);
    const auto add = [&](std::uint64_t measure, std::int32_t order, std::int32_t index) {
      if (cut_.has(order, index)) bins_[sample::key_in(order) >> shift & mask] += measure;
    };
    visit_elements<T>(row_, length_, least_, most_, measure_, add);
  }
  // The bin in which the goal is reached; the goal is then what is left of it. -1: none.
  int bin_of(std::uint64_t& goal) const {
    int bin = kBins - 1;
    while (bin >= 0 && bins_[bin] < goal) goal -= bins_[bin--];
    return bin;
  }
  // Of the equal elements that are left, the last one that is needed.
  std::int32_t last_of_equal(std::uint64_t goal) const {
    std::int32_t last = 0;
    const auto take = [&](std::uint64_t measure, std::int32_t order, std::int32_t index) {
      if (goal == 0 || !cut_.has(order, index)) return;
      last = index;
      goal -= std::min(goal, measure);
    };
    visit_elements<T>(row_, length_, least_, most_, measure_, take);
    return last;
  }

  const T* row_;
  std::int64_t length_;
  sample::Cut cut_;
  Measure measure_;
  std::int32_t least_ = 0, most_ = 0;
  std::uint64_t bins_[kBins];
};

// The first elements by a measure. `near`: an order from which on there are likely enough.
template <class T, class Measure>
sample::Cut shortest_prefix(const T* row, std::int64_t length, sample::Cut cut, std::int32_t near,
                            std::uint64_t goal, const Measure& measure) {
  PrefixFinder<T, Measure> finder(row, length, cut, measure);
  sample::Cut found = cut;
  if (!finder.find(near, goal, found)) finder.find(cut.order, goal, found);
  return found;
}

// What the filters leave.
template <class T>
sample::Cut filtered(const T* row, std::int64_t length, const sample::Settings& settings,
                     const sample::Weigher& weigher) {
  sample::Cut cut = sample::whole_row();
  const std::int32_t near = weigher.near();
  if (settings.limits(length))
    cut = shortest_prefix(row, length, cut, near, static_cast<std::uint64_t>(settings.top_k),
                          [](float) { return 1.0f; });
  if (settings.top_p < 1) {
    const std::uint64_t sum = weigh(row, 0, length, {weigher, cut, 0});
    const std::uint64_t goal = sample::part_of(sum, settings.top_p);
    cut = shortest_prefix(row, length, cut, near, goal,
                          [=](float x) { return weigher.probability(x) * sample::kUnit; });
  }
  return cut;
}

// The index of the element, by rising indices, in which the running sum goes beyond a number that
// is drawn.
template <class T>
std::int64_t drawn_index(const T* row, std::int64_t length, const sample::Settings& settings,
                         const sample::Drawer& by) {
  constexpr std::int64_t kParts = 1024;
  const std::int64_t chunks = (length + gather::kChunk - 1) / gather::kChunk;
  const std::int64_t part = (chunks + kParts - 1) / kParts * gather::kChunk;
  std::uint64_t sums[kParts], sum = 0;
  for (std::int64_t i = 0; i * part < length; ++i)
    sum += sums[i] = weigh(row, i * part, std::min((i + 1) * part, length), by);
  std::uint64_t rest = sample::drawn(settings, sum);
  std::int64_t own = 0;
  while (rest >= sums[own]) rest -= sums[own++];
  ChunkWeights weights;
  for (std::int64_t at = own * part;; at += gather::kChunk) {
    const std::uint64_t chunk =
        weigh_chunk<T>(row, at, std::min(gather::kChunk, length - at), by, weights);
    if (rest >= chunk) {
      rest -= chunk;
      continue;
    }
    std::int64_t i = 0;
    while (rest >= weights.at(i)) rest -= weights.at(i++);
    return at + i;
  }
}

template <class T>
std::int64_t sample_row(const void* data, std::int64_t length, const sample::Settings& settings) {
  if (!settings.are_valid()) return -1;
  const std::int64_t key = largest_key<T>(data, 0, length);
  const std::int32_t order = gather::order_in(key);
  if (!sample::has_weights(order)) return -1;
  if (settings.is_greedy()) return gather::index_of(key);
  const T* const row = static_cast<const T*>(data);
  const sample::Weigher weigher = {gather::value_of(order), settings.slope()};
  const sample::Cut cut = filtered(row, length, settings, weigher);
  return drawn_index(row, length, settings, {weigher, cut, settings.min_p});
}

template <class T>
inline constexpr sample::SampleRow kSampleRow = sample_row<T>;

}  // namespace planq::host::PLANQ_LEVEL
