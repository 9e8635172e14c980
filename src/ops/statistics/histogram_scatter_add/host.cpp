// histogram_scatter_add on the host: a stable sort by digits, then each bin's sum.

#include <cstdint>
#include <utility>

#include "core/scratch.h"
#include "host/bind.h"
#include "host/thread_pool.h"
#include "host/tree_sum.h"
#include "ops/statistics/histogram_scatter_add/bins.h"

namespace planq::histogram_scatter_add {
namespace {

// Sources that are worth waking a thread for.
constexpr std::int64_t kGrain = 1 << 14;

struct Item {
  std::int64_t bin;
  float source;
};
struct Pieces {
  Item *items, *others;
  float* terms;

  Pieces(std::int64_t count, Scratch& scratch)
      : items(scratch.take<Item>(static_cast<std::size_t>(count))),
        others(scratch.take<Item>(static_cast<std::size_t>(count))),
        terms(scratch.take<float>(static_cast<std::size_t>(count))) {}
};

void sort_by_digit(const Item* items, Item* to, std::int64_t count, int shift) {
  std::int64_t places[kDigits + 1] = {};
  const auto digit = [&](const Item& item) { return item.bin >> shift & (kDigits - 1); };
  for (std::int64_t i = 0; i < count; ++i) ++places[digit(items[i]) + 1];
  for (int d = 0; d < kDigits; ++d) places[d + 1] += places[d];
  for (std::int64_t i = 0; i < count; ++i) to[places[digit(items[i])]++] = items[i];
}

// Adds up the bins whose first sources are among [first, last).
void add_bins(const Bins& bins, const Pieces& pieces, std::int64_t count, std::int64_t first,
              std::int64_t last) {
  const Item* const items = pieces.items;
  while (first > 0 && first < last && items[first].bin == items[first - 1].bin) ++first;
  for (std::int64_t next; first < last; first = next) {
    const std::int64_t bin = items[first].bin;
    for (next = first; next < count && items[next].bin == bin; ++next)
      pieces.terms[next] = items[next].source;
    if (bin < bins.count())
      bins.add(bin, host::tree_sum_over(pieces.terms + first, next - first), next - first);
  }
}

Status compute(const Call& call, const Stream& stream) {
  const std::int64_t count = call.fields<Fields>().count;
  const Bins bins(call);
  Scratch scratch(call.workspace);
  Pieces pieces(count, scratch);
  std::int64_t outside = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    pieces.items[i] = {bins.of(i), bins.source[i]};
    outside += pieces.items[i].bin == bins.count();
  }
  for (int digit = 0; digit < bins.digits(); ++digit) {
    sort_by_digit(pieces.items, pieces.others, count, digit * kDigitBits);
    std::swap(pieces.items, pieces.others);
  }
  host::parallel_for(stream.threads, count, kGrain, [&](std::int64_t first, std::int64_t last) {
    add_bins(bins, pieces, count, first, last);
  });
  *static_cast<std::int64_t*>(call.operands[kOutside].data) = outside;
  return Status::success();
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch counting;
  Pieces(descriptor.as<Fields>().count, counting);
  return counting.bytes();
}

Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }

constexpr Kernel kKernels[] = {{
    .op = "histogram_scatter_add",
    .body = "sorted",
    .revision = 1,
    .backend = Backend::Host,
    .arch = {},
    .rank = 0,
    .guarantee = kGuarantee,
    .rejects = accept,
    .workspace = workspace,
    .prepare = nothing_to_prepare,
    .bind = host::bind<compute>,
}};

}  // namespace

}  // namespace planq::histogram_scatter_add

PLANQ_KERNELS(histogram_scatter_add, host, kKernels);
