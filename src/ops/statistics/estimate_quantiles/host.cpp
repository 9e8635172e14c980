// estimate_quantiles on the host: threads count pieces of the tensor on their own stacks, in 16
// bits, and add the counts up. Integers, so the number of threads changes no bit.

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/elementwise.h"
#include "core/scratch.h"
#include "core/sku.h"
#include "host/bind.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/statistics/estimate_quantiles/prefixes.h"
#include "ops/statistics/quantiles.h"

namespace planq::estimate_quantiles {
namespace {

using std::int64_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;

// Elements from which on another thread, with counters of its own, is worth it.
constexpr int64_t kGrain = 1 << 18;
// A counter below this may count this many elements more before it has to be checked for overflow.
constexpr uint32_t kHalfFull = 1 << 15;

uint64_t* book(Scratch& scratch) { return scratch.take<uint64_t>(kCounters); }

template <class T>
class Selection {
 public:
  using Key = math::OrderKey<T>;
  using C = math::Compute<T>;

  Selection(const Fields& f, const Operands& operands, uint64_t* counts, const Stream& stream)
      : fields_(f),
        layout_(element_layout(f.shape, Scope{}, {ElementOperand{&operands[kInput]}})),
        input_(static_cast<const T*>(operands[kInput].data)),
        output_(static_cast<C*>(operands[kOutput].data)),
        counts_(counts),
        threads_(stream.threads) {}

  void run() {
    Digit digit = first_digit(fields_.input_dtype);
    count<true>(digit);
    if (!choose()) {
      std::fill_n(output_, fields_.quantiles, math::canonical_nan<C>());
      return;
    }
    narrow(digit);
    while (!digit.is_last()) {
      digit = next_digit(digit, fields_.quantiles);
      enter_prefixes();
      count<false>(digit);
      narrow(digit);
    }
    for (int64_t j = 0; j < fields_.quantiles; ++j)
      output_[j] = math::value_of_order<T>(prefixes_.keys[prefix_numbers_[j]]);
  }

 private:
  template <bool kFirst>
  void count(const Digit& digit) {
    std::fill_n(counts_, kCounters, 0);
    host::parallel_for(threads_, layout_.elements(), kGrain, [&](int64_t first, int64_t last) {
      count_piece<kFirst>(digit, first, last);
    });
  }

  template <bool kFirst>
  void count_piece(const Digit& digit, int64_t first, int64_t last) {
    alignas(64) uint16_t own[kCounters] = {};
    for (int64_t at = first, length; at < last; at += length) {
      length = std::min<int64_t>(kHalfFull, last - at);
      count_elements<kFirst>(digit, at, at + length, own);
      uint16_t any = 0;
      for (const uint16_t counter : own) any |= counter;
      if (any >= kHalfFull) hand_over(own, kHalfFull);
    }
    hand_over(own, 1);
  }

  template <bool kFirst>
  void count_elements(const Digit& digit, int64_t first, int64_t last, uint16_t* own) {
    for (int64_t at = first, length; at < last; at += length) {
      const int64_t row = at / layout_.length, column = at - row * layout_.length;
      length = std::min(layout_.length - column, last - at);
      const T* const x = input_ + layout_.rows.offsets(row).at[0] + column;
      // A local copy, so that the compiler keeps it in registers.
      const Digit by = digit;
      for (int64_t i = 0; i < length; ++i) {
        const Key key = math::order_key(x[i]);
        uint32_t prefix = 0;
        if constexpr (!kFirst) prefix = prefixes_.find(key >> by.shift >> by.bits);
        if (prefix != Prefixes<Key>::kNone) ++own[prefix << by.bits | by.of(key)];
      }
    }
  }

  // Adds this thread's counters that have reached `least` to the shared ones, and sets them to 0.
  void hand_over(uint16_t* own, uint32_t least) {
    for (int i = 0; i < kCounters; ++i) {
      if (own[i] < least) continue;
      __atomic_fetch_add(counts_ + i, own[i], __ATOMIC_RELAXED);
      own[i] = 0;
    }
  }

  // Which elements are wanted, by their ranks among those that count; false if the result is NaN.
  bool choose() {
    const auto nans = static_cast<int64_t>(counts_[kCounters - 1]);
    const int64_t counted = layout_.elements() - nans;
    if (counted == 0 || (nans > 0 && fields_.nonfinite == NonFinite::Propagate)) return false;
    for (int64_t j = 0; j < fields_.quantiles; ++j)
      ranks_[j] = static_cast<uint64_t>(
          math::quantile_position(j, fields_.quantiles, fields_.tail, counted));
    prefixes_.keys[0] = 0;
    return true;
  }

  // Finds the counter of every wanted element. The digits of those counters extend the prefixes of
  // the next pass, and ranks become those among the elements with the same prefix.
  void narrow(const Digit& digit) {
    std::array<Key, kMaxQuantiles> keys;
    uint64_t before = 0, rank_of_prefix = 0, prefix_end = 0;
    uint32_t counter = 0, previous = ~uint32_t{0}, prefix = ~uint32_t{0};
    for (int64_t j = 0; j < fields_.quantiles; ++j) {
      while (counter < kCounters - 1 && before + counts_[counter] <= ranks_[j])
        before += counts_[counter++];
      if (counter != previous) {
        keys[++prefix] = prefixes_.keys[counter >> digit.bits] << digit.bits |
                         (counter & ((1u << digit.bits) - 1));
        rank_of_prefix = prefix_end;
        prefix_end += counts_[counter];
        previous = counter;
      }
      ranks_[j] += rank_of_prefix - before;
      prefix_numbers_[j] = prefix;
    }
    std::copy_n(keys.begin(), prefix + 1, prefixes_.keys);
  }

  void enter_prefixes() {
    std::fill_n(prefixes_.places, Prefixes<Key>::kPlaces, Prefixes<Key>::kNone);
    for (uint32_t prefix = 0; prefix <= prefix_numbers_[fields_.quantiles - 1]; ++prefix) {
      uint32_t place = Prefixes<Key>::first_place(prefixes_.keys[prefix]);
      while (prefixes_.places[place] != Prefixes<Key>::kNone)
        place = Prefixes<Key>::next_place(place);
      prefixes_.places[place] = prefix;
    }
  }

  const Fields& fields_;
  const ElementLayout layout_;
  const T* const input_;
  C* const output_;
  uint64_t* const counts_;
  const int threads_;
  Prefixes<Key> prefixes_;
  uint64_t ranks_[kMaxQuantiles];           // of wanted elements
  uint32_t prefix_numbers_[kMaxQuantiles];  // the numbers of their prefixes
};

template <DType kInput>
Status compute(const Call& call, const Stream& stream) {
  Scratch scratch(call.workspace);
  Selection<math::Stored<kInput>>(call.fields<Fields>(), call.operands, book(scratch), stream)
      .run();
  return Status::success();
}

std::size_t workspace(const Descriptor&, const Device&) {
  Scratch scratch;
  book(scratch);
  return scratch.bytes();
}

template <DType kInput>
constexpr Kernel make_kernel() {
  return {
      .op = "estimate_quantiles",
      .body = "radix",
      .dtypes = kDTypes<kInput, compute_dtype(kInput)>,
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = guarantee<kInput>(),
      .rejects = rejects<kInput>,
      .workspace = workspace,
      .prepare = nothing_to_prepare,
      .bind = host::bind<compute<kInput>>,
  };
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>(), make_kernel<DType::Float64>()};

}  // namespace

}  // namespace planq::estimate_quantiles

PLANQ_KERNELS(estimate_quantiles, host, kKernels);
