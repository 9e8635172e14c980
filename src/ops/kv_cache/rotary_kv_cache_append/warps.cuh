// rotary_kv_cache_append with an output for queries, of any heads that lie anywhere, in one launch:
// a warp has a head at a time, in shared memory between the norm and the turn. Tokens are found and
// counted as in cuda.cuh. The file that includes this names the type of the elements: see
// cuda/element.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "ops/kv_cache/coded.cuh"
#include "ops/kv_cache/last_tokens.cuh"
#include "ops/kv_cache/rotary_kv_cache_append/arguments.cuh"
#include "ops/kv_cache/rotary_kv_cache_append/desc.h"
#include "ops/position/held_head.cuh"

namespace planq::rotary_kv_cache_append {
namespace {

constexpr int kWarpThreads = 256, kWarpHeads = kWarpThreads / cuda::kWarp;
// Half of what other blocks may have: heads take the rest of the shared memory.
constexpr int kMostWarpTokens = kv_cache::kMostTokens / 2;

// A head that a warp has. `x`: in shared memory, for its columns.
template <DType kCacheType>
struct WarpHead {
  const HeadArgs& args;
  std::int64_t token, head;  // the head: of queries, keys and values, in this order
  float* x;
  int lane;

  __device__ __forceinline__ bool is_query() const { return head < args.heads.query_heads; }
  __device__ __forceinline__ bool is_turned() const { return head < args.heads.of_token; }
  __device__ __forceinline__ const kv_cache::Side& side() const {
    return is_turned() ? args.cache.key : args.cache.value;
  }
  __device__ __forceinline__ const cuda::Element* row() const {
    if (is_turned()) return args.heads.row<cuda::Element>(token, head);
    const kv_cache::Side& value = args.cache.value;
    return static_cast<const cuda::Element*>(value.input) + token * value.token +
           (head - args.heads.of_token) * value.input_head;
  }

  // Calls use(element, column) for the lane's columns, of a head that is turned if it has to be.
  template <class Use>
  __device__ __forceinline__ void each(const Use& use) const {
    const cuda::Element* const from = row();
    const position::Heads& heads = args.heads;
    const std::int64_t columns = is_turned() ? heads.columns : args.cache.value.columns;
    const std::int64_t position = is_turned() ? heads.position(token) : 0;
    const bool is_lost = is_turned() && !heads.has(position);
    const bool has_norm = heads.weight_dtype != DType::Unset;
    const position::HeldHead<1> held = {heads, x, lane};
    if (is_turned() && !is_lost) hold(held, has_norm);
    const std::int64_t made = !is_turned() ? 0 : has_norm ? heads.columns : heads.rotary;
#pragma unroll 1
    for (std::int64_t i = lane; i < columns; i += cuda::kWarp) {
      const int column = static_cast<int>(i);
      if (is_lost)
        use(position::nan_element(), i);
      else if (i < made)
        use(math::narrowed<cuda::Element>(held.turned(column, heads.cosines(position))), i);
      else
        use(from[i], i);
    }
    __syncwarp();  // the columns have been read
  }
  __device__ __forceinline__ void hold(const position::HeldHead<1>& held, bool has_norm) const {
    const float squares = held.read(row());
    if (has_norm)
      held.scale(math::norm_factor(squares, args.heads.length, args.heads.eps.get()),
                 args.heads.weight(head));
    __syncwarp();
  }

  __device__ __forceinline__ void output() const {
    each([&](cuda::Element x, std::int64_t i) {
      args.output.with_type([&](auto kind) {
        constexpr DType kType = decltype(kind)::value;
        kv_cache::coded<kType>(cuda::Neighbours<cuda::Element, 1>{{x}}, 1.0f)
            .store(args.output.row<kv_cache::Code<kType>>(token, head) + i);
      });
    });
  }
  __device__ __forceinline__ void append(std::int64_t slot) const {
    const std::int64_t page = args.pages.quotient(slot);
    const std::int64_t place = slot - page * args.pages.divisor();
    const kv_cache::Side& own = side();
    const std::int64_t cached = head - (is_turned() ? args.heads.query_heads : args.heads.of_token);
    const float scale =
        args.cache.measures ? measured(own, page, place, cached) : args.cache.scale(own, cached);
    auto* const to = static_cast<kv_cache::Code<kCacheType>*>(own.cache) + page * own.page +
                     place * own.place + cached * own.cache_head;
    each([&](cuda::Element x, std::int64_t i) {
      kv_cache::coded<kCacheType>(cuda::Neighbours<cuda::Element, 1>{{x}}, scale).store(to + i);
    });
  }
  // The head's scale, which goes where its codes go.
  __device__ __forceinline__ float measured(const kv_cache::Side& own, std::int64_t page,
                                            std::int64_t place, std::int64_t cached) const {
    if constexpr (kv_cache::is_code(kCacheType)) {
      std::uint32_t peak = 0;
      each([&](cuda::Element x, std::int64_t) {
        peak = max(peak, math::magnitude_bits(math::widened(x)));
      });
#pragma unroll 1
      for (int step = 1; step < cuda::kWarp; step *= 2)
        peak = max(peak, __shfl_xor_sync(cuda::kAllLanes, peak, step));
      const float scale = math::measured_scale<kCacheType>(peak);
      if (lane == 0)
        own.measured[page * own.scale_page + place * own.scale_place + cached * own.scale_head] =
            scale;
      return scale;
    }
    return 1.0f;
  }
};

template <DType kCacheType>
__global__ void __launch_bounds__(kWarpThreads)
    turn_by_warps(const __grid_constant__ HeadArgs args) {
  cuda::follow_previous();
  if (counts_invalid<kWarpThreads>(args)) return;
  const BlockShare share(args);
  kv_cache::BlockTokens tokens;
  if (args.table.each > 1)
    tokens.choose<kWarpThreads>(args.cache, args.table, share.first, share.count);
  else
    tokens.choose_one<kWarpThreads>(args.cache, share.first);
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  auto* const room = static_cast<std::byte*>(cuda::dynamic_shared()) + args.table_bytes;
  float* const x = reinterpret_cast<float*>(room) + warp * args.heads.columns;
  const std::int64_t all = share.count * args.of_token.divisor();
#pragma unroll 1
  for (std::int64_t i = warp; i < all; i += kWarpHeads) {
    const std::int64_t of_block = args.of_token.quotient(i);
    const std::int64_t head = i - of_block * args.of_token.divisor();
    const WarpHead<kCacheType> own = {args, share.first + of_block, head, x, lane};
    const std::int64_t slot = own.is_query() ? -1 : tokens.slot(static_cast<int>(of_block));
    if (own.is_query())
      own.output();
    else if (slot >= 0)
      own.append(slot);
  }
}

// --- From a call to a launch ---------------------------------------------------------------------

template <DType kCacheType>
Status preload_warps() {
  constexpr int kHeads = kWarpHeads * static_cast<int>(position::kMostColumns * sizeof(float));
  return cuda::preload(turn_by_warps<kCacheType>,
                       kv_cache::TokenTable(kMostWarpTokens).shared_bytes() + kHeads);
}

template <DType kCacheType>
Status bind_warps(const Call& call, Bound& bound) {
  const position::Heads heads(call.fields<Fields>(), head_operands_of(call.operands));
  const HeadArgs args = arguments_of(call, heads, 2, kMostWarpTokens);
  const int shared_bytes = kWarpHeads * heads.columns * static_cast<int>(sizeof(float));
  return launch_tokens(turn_by_warps<kCacheType>, kWarpThreads, shared_bytes, call.device, args,
                       bound);
}

template <DType kCacheType>
Reason rejects_warps(const Descriptor& descriptor, const Device&) {
  const Reason reason = rejects_types<cuda::kElement, kCacheType>(descriptor);
  if (!reason.accepted()) return reason;
  if (descriptor.as<Fields>().is_in_place())
    return Reason::refuse(ReasonKind::Feature, "turns queries into an output");
  return Reason::accept();
}

template <DType kCacheType>
constexpr Kernel make_warps_kernel() {
  return {.op = "rotary_kv_cache_append",
          .body = "warps",
          .dtypes = kDTypes<cuda::kElement, kCacheType>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80, kLastArch},
          .rank = 1,
          .guarantee = kGuarantee,
          .rejects = rejects_warps<kCacheType>,
          .workspace = no_workspace,
          .prepare = [](const Descriptor&, const Device&,
                        State&) { return preload_warps<kCacheType>(); },
          .bind = bind_warps<kCacheType>};
}

}  // namespace
}  // namespace planq::rotary_kv_cache_append
