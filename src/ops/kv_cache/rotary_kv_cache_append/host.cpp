// rotary_kv_cache_append on the host: its parts, in place, and a kernel that reads queries and keys
// alone. Threads of that one take queries one after another, and the keys and values of a share of
// all slots, token by token: so of equal slots the last counts, however slots are shared.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "host/bind.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/kv_cache/columns_host.h"
#include "ops/kv_cache/rotary_kv_cache_append/desc.h"
#include "ops/position/head_host.h"

namespace planq::rotary_kv_cache_append {
namespace {

using kv_cache::Cache;
using kv_cache::Side;
using position::Heads;
using std::int64_t;

// The fewest elements that are worth waking a thread for.
constexpr int64_t kGrain = 16384;
// Slots go by turns into so many shares.
constexpr int64_t kShares = 16;

// Columns of a head that is kCacheType in the cache.
template <DType kType, DType kCacheType>
void append_head(const Cache& cache, const Side& side, int64_t head, int64_t slot,
                 const math::Stored<kType>* from) {
  constexpr int64_t kSize = storage_bytes(kCacheType);
  const auto write = kv_cache::columns_writer(kType, kCacheType);
  const int64_t page = slot / cache.page_size, place = slot % cache.page_size;
  auto* const to = static_cast<std::byte*>(side.cache) +
                   (page * side.page + place * side.place + head * side.cache_head) * kSize;
  const auto in_chunks = [&](const auto& use) {
    for (int64_t first = 0; first < side.columns; first += kv_cache::kChunk)
      use(first, std::min(kv_cache::kChunk, side.columns - first));
  };
  float scale = cache.scale(side, head);
  if constexpr (kv_cache::is_code(kCacheType)) {
    if (cache.measures) {
      const auto find_peak = kv_cache::peak_finder(kType);
      std::uint32_t peak = 0;
      in_chunks([&](int64_t first, int64_t count) {
        peak = std::max(peak, find_peak(from + first, count));
      });
      scale = math::measured_scale<kCacheType>(peak);
      side.measured[page * side.scale_page + place * side.scale_place + head * side.scale_head] =
          scale;
    }
  }
  in_chunks(
      [&](int64_t first, int64_t count) { write(from + first, scale, count, to + first * kSize); });
}

template <DType kType, DType kCacheType>
class TurnedAppend {
 public:
  TurnedAppend(const Call& call, const Heads& heads)
      : heads_(heads),
        cache_(cache_of(call)),
        eps_(heads.eps.get()),
        output_(call.operands[kQueryOutput]),
        output_dtype_(call.fields<Fields>().output_dtype) {}

  int64_t queries() const { return heads_.tokens * heads_.query_heads; }
  void output_queries(int64_t first, int64_t last) const {
    position::HeadTurner<T> turner(heads_, eps_);
    for (int64_t i = first; i < last; ++i)
      output_query(turner, i / heads_.query_heads, i % heads_.query_heads);
  }
  // Of a head's keys, or of its values, the tokens whose slots are of a share.
  int64_t pieces() const { return cache_.heads * sides() * kShares; }
  void append_pieces(int64_t first, int64_t last) const {
    position::HeadTurner<T> turner(heads_, eps_);
    for (int64_t i = first; i < last; ++i) append_piece(turner, i);
  }
  void count_invalid(int64_t* invalid) const {
    invalid[0] = invalid[1] = 0;
    for (int64_t token = 0; token < heads_.tokens; ++token) {
      invalid[0] += heads_.has(heads_.position(token)) ? 0 : 1;
      invalid[1] += cache_.is_beyond(cache_.slots[token]) ? 1 : 0;
    }
  }

 private:
  using T = math::Stored<kType>;

  int64_t sides() const { return cache_.value.columns > 0 ? 2 : 1; }
  void output_query(position::HeadTurner<T>& turner, int64_t token, int64_t head) const {
    T made[position::kMostColumns];
    turner.turn(token, head, made);
    const auto write = kv_cache::columns_writer(kType, output_dtype_);
    auto* const to =
        static_cast<std::byte*>(output_.data) +
        (token * output_.strides[0] + head * output_.strides[1]) * storage_bytes(output_dtype_);
    write(made, 1.0f, heads_.columns, to);
  }
  void append_piece(position::HeadTurner<T>& turner, int64_t piece) const {
    const int64_t share = piece % kShares, side = piece / kShares % sides();
    const int64_t head = piece / kShares / sides();
    for (int64_t token = 0; token < cache_.tokens; ++token) {
      const int64_t slot = cache_.slots[token];
      if (!cache_.has(slot) || slot % kShares != share) continue;
      if (side == 0) {
        T made[position::kMostColumns];
        turner.turn(token, heads_.query_heads + head, made);
        append_head<kType, kCacheType>(cache_, cache_.key, head, slot, made);
      } else {
        const Side& value = cache_.value;
        append_head<kType, kCacheType>(
            cache_, value, head, slot,
            static_cast<const T*>(value.input) + token * value.token + head * value.input_head);
      }
    }
  }

  const Heads& heads_;
  Cache cache_;
  float eps_;
  const OperandView& output_;
  DType output_dtype_;
};

template <DType kType, DType kCacheType>
Status compute(const Call& call, const Stream& stream) {
  const Heads heads(call.fields<Fields>(), head_operands_of(call.operands));
  const TurnedAppend<kType, kCacheType> work(call, heads);
  host::parallel_for(stream.threads, work.queries(), std::max<int64_t>(kGrain / heads.columns, 1),
                     [&](int64_t first, int64_t last) { work.output_queries(first, last); });
  const int64_t of_piece = heads.columns * (heads.tokens / kShares + 1);
  host::parallel_for(stream.threads, work.pieces(), std::max<int64_t>(kGrain / of_piece, 1),
                     [&](int64_t first, int64_t last) { work.append_pieces(first, last); });
  work.count_invalid(static_cast<int64_t*>(call.operands[kInvalid].data));
  return Status::success();
}

template <DType kType, DType kCacheType>
Reason rejects_heads(const Descriptor& descriptor, const Device&) {
  const Reason reason = rejects_types<kType, kCacheType>(descriptor);
  if (!reason.accepted()) return reason;
  if (descriptor.as<Fields>().is_in_place())
    return Reason::refuse(ReasonKind::Feature, "turns queries into an output");
  return Reason::accept();
}

template <DType kType, DType kCacheType>
constexpr Kernel make_kernel() {
  return {.op = "rotary_kv_cache_append",
          .body = "heads",
          .dtypes = kDTypes<kType, kCacheType>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 1,
          .guarantee = kGuarantee,
          .rejects = rejects_heads<kType, kCacheType>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kType, kCacheType>>};
}

template <DType kType, DType... kMore>
constexpr std::array kOfType = {make_kernel<kType, kType>(), make_kernel<kType, DType::Int8>(),
                                make_kernel<kType, DType::Float8E4M3FN>(),
                                make_kernel<kType, DType::Float8E5M2>(),
                                make_kernel<kType, kMore>()...};

constexpr auto kKernels =
    joined(kPartsKernels<Backend::Host>, kOfType<DType::Float16>, kOfType<DType::BFloat16>,
           kOfType<DType::Float32, DType::Float16, DType::BFloat16>);

}  // namespace
}  // namespace planq::rotary_kv_cache_append

PLANQ_KERNELS(rotary_kv_cache_append, host, kKernels);
