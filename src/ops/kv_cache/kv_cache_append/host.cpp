// kv_cache_append on the host. A thread has some columns of a head, or all of them where scales are
// measured, and takes all tokens in turn: so of equal slots the last counts, however columns are
// shared.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/sku.h"
#include "host/bind.h"
#include "host/thread_pool.h"
#include "ops/kv_cache/cache.h"
#include "ops/kv_cache/columns_host.h"
#include "ops/kv_cache/kv_cache_append/desc.h"

namespace planq::kv_cache_append {
namespace {

using kv_cache::Cache;
using kv_cache::FindPeak;
using kv_cache::kChunk;
using kv_cache::Side;
using kv_cache::WriteColumns;
using std::int64_t;

// The fewest elements that are worth waking a thread for.
constexpr int64_t kGrain = 16384;

int64_t chunks_of(const Side& side) { return (side.columns + kChunk - 1) / kChunk; }

// One chunk of a head, of all tokens.
template <DType kInputType, DType kCacheType>
void append_chunk(const Cache& cache, const Side& side, int64_t head, int64_t chunk) {
  using T = math::Stored<kInputType>;
  constexpr int64_t kSize = storage_bytes(kCacheType);
  const WriteColumns write = kv_cache::columns_writer(kInputType, kCacheType);
  const int64_t first = chunk * kChunk, count = std::min(kChunk, side.columns - first);
  const float scale = cache.scale(side, head);
  const T* const from = static_cast<const T*>(side.input) + head * side.input_head + first;
  auto* const to = static_cast<std::byte*>(side.cache) + (head * side.cache_head + first) * kSize;
  for (int64_t token = 0; token < cache.tokens; ++token) {
    const int64_t slot = cache.slots[token];
    if (!cache.has(slot)) continue;
    const int64_t page = slot / cache.page_size, place = slot % cache.page_size;
    write(from + token * side.token, scale, count,
          to + (page * side.page + place * side.place) * kSize);
  }
}

// A head of all tokens, under scales that it has measured.
template <DType kInputType, DType kCacheType>
void append_measured(const Cache& cache, const Side& side, int64_t head) {
  using T = math::Stored<kInputType>;
  const WriteColumns write = kv_cache::columns_writer(kInputType, kCacheType);
  const FindPeak find_peak = kv_cache::peak_finder(kInputType);
  const auto in_chunks = [&](const auto& use) {
    for (int64_t first = 0; first < side.columns; first += kChunk)
      use(first, std::min(kChunk, side.columns - first));
  };
  for (int64_t token = 0; token < cache.tokens; ++token) {
    const int64_t slot = cache.slots[token];
    if (!cache.has(slot)) continue;
    const int64_t page = slot / cache.page_size, place = slot % cache.page_size;
    const T* const from =
        static_cast<const T*>(side.input) + token * side.token + head * side.input_head;
    auto* const to = static_cast<std::byte*>(side.cache) + page * side.page + place * side.place +
                     head * side.cache_head;
    std::uint32_t peak = 0;
    in_chunks([&](int64_t first, int64_t count) {
      peak = std::max(peak, find_peak(from + first, count));
    });
    const float scale = math::measured_scale<kCacheType>(peak);
    side.measured[page * side.scale_page + place * side.scale_place + head * side.scale_head] =
        scale;
    in_chunks([&](int64_t first, int64_t count) { write(from + first, scale, count, to + first); });
  }
}

// All of a call that measures.
template <DType kInputType, DType kCacheType>
void append_all_measured(const Cache& cache, bool has_value, int threads) {
  if constexpr (is_code(kCacheType)) {
    const int64_t sides = has_value ? 2 : 1;
    const int64_t of_head = (cache.key.columns + 1) * std::max<int64_t>(cache.tokens, 1);
    host::parallel_for(threads, cache.heads * sides, std::max<int64_t>(kGrain / of_head, 1),
                       [&](int64_t from, int64_t to) {
                         for (int64_t i = from; i < to; ++i)
                           append_measured<kInputType, kCacheType>(
                               cache, i % sides == 0 ? cache.key : cache.value, i / sides);
                       });
  }
}

// All of one that does not: threads have chunks.
template <DType kInputType, DType kCacheType>
void append_all(const Cache& cache, int threads) {
  const int64_t of_key = chunks_of(cache.key), of_head = of_key + chunks_of(cache.value);
  const int64_t grain = kGrain / (kChunk * std::max<int64_t>(cache.tokens, 1));
  host::parallel_for(
      threads, cache.heads * of_head, std::max<int64_t>(grain, 1), [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) {
          const int64_t head = i / of_head, chunk = i % of_head;
          const bool is_key = chunk < of_key;
          append_chunk<kInputType, kCacheType>(cache, is_key ? cache.key : cache.value, head,
                                               is_key ? chunk : chunk - of_key);
        }
      });
}

template <DType kInputType, DType kCacheType>
Status compute(const Call& call, const Stream& stream) {
  const Cache cache = cache_of(call);
  if (cache.measures)
    append_all_measured<kInputType, kCacheType>(cache, call.fields<Fields>().value_dim > 0,
                                                stream.threads);
  else
    append_all<kInputType, kCacheType>(cache, stream.threads);
  int64_t invalid = 0;
  for (int64_t token = 0; token < cache.tokens; ++token)
    invalid += cache.is_beyond(cache.slots[token]) ? 1 : 0;
  *static_cast<int64_t*>(call.operands[kInvalid].data) = invalid;
  return Status::success();
}

template <DType kInputType, DType kCacheType>
constexpr Kernel make_kernel() {
  return {.op = "kv_cache_append",
          .body = "columns",
          .dtypes = kDTypes<kInputType, kCacheType>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee<kInputType, kCacheType>,
          .rejects = rejects<kInputType, kCacheType>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kInputType, kCacheType>>};
}

template <DType kInputType>
constexpr std::array kOfInput = {
    make_kernel<kInputType, kInputType>(), make_kernel<kInputType, DType::Int8>(),
    make_kernel<kInputType, DType::Float8E4M3FN>(), make_kernel<kInputType, DType::Float8E5M2>()};

constexpr std::array kRounding = {make_kernel<DType::Float32, DType::Float16>(),
                                  make_kernel<DType::Float32, DType::BFloat16>()};

constexpr auto kKernels = joined(kOfInput<DType::Float16>, kOfInput<DType::BFloat16>,
                                 kOfInput<DType::Float32>, kRounding);

}  // namespace
}  // namespace planq::kv_cache_append

PLANQ_KERNELS(kv_cache_append, host, kKernels);
