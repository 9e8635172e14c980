// What the kernels of rotary_kv_cache_append that need one launch are given, and how they are
// launched. The file that includes this names the type of the elements: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/architectures.h"
#include "cuda/counter.cuh"
#include "cuda/divider.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "ops/kv_cache/cache.h"
#include "ops/kv_cache/last_tokens.cuh"
#include "ops/kv_cache/rotary_kv_cache_append/desc.h"
#include "ops/position/heads.h"

namespace planq::rotary_kv_cache_append {
namespace {

// Where queries go that are not turned in place.
struct QueryOutput {
  void* data;
  std::int64_t token, head;
  DType dtype;

  __device__ __forceinline__ bool is_in_place() const { return dtype == DType::Unset; }
  template <class T>
  __device__ __forceinline__ T* row(std::int64_t own_token, std::int64_t own_head) const {
    return static_cast<T*>(data) + own_token * token + own_head * head;
  }
  // Calls use(type), a constant: that of the elements, or one that float32 is rounded to.
  template <class Use>
  __device__ __forceinline__ void with_type(const Use& use) const {
    if constexpr (cuda::kElement == DType::Float32) {
      if (dtype == DType::Float16) return use(std::integral_constant<DType, DType::Float16>());
      if (dtype == DType::BFloat16) return use(std::integral_constant<DType, DType::BFloat16>());
    }
    use(std::integral_constant<DType, cuda::kElement>());
  }
};

struct HeadArgs {
  position::Heads heads;
  kv_cache::Cache cache;
  QueryOutput output;
  kv_cache::TokenTable table;
  int table_bytes;  // of shared memory
  cuda::Counter no_position, no_slot;
  cuda::WideDivider of_token, pages;  // of_token: heads of a query, of a key, and of a value
  int lanes = 0, units = 0;           // threads of a head, and those that have columns of pairs
};

template <int kThreads>
__device__ __forceinline__ bool counts_invalid(const HeadArgs& args) {
  const std::int64_t block = blockIdx.x, of_positions = args.no_position.blocks;
  if (block >= of_positions + args.no_slot.blocks) return false;
  if (block < of_positions)
    args.no_position.count<kThreads>(
        block, [&](std::int64_t i) { return !args.heads.has(args.heads.position(i)); });
  else
    args.no_slot.count<kThreads>(block - of_positions, [&](std::int64_t i) {
      return args.cache.is_beyond(args.cache.slots[i]);
    });
  return true;
}

// The tokens of a block: `count` from `first` on.
struct BlockShare {
  std::int64_t first;
  int count;

  __device__ __forceinline__ explicit BlockShare(const HeadArgs& args) {
    const std::int64_t block = blockIdx.x - args.no_position.blocks - args.no_slot.blocks;
    first = block * args.table.each;
    count = static_cast<int>(min(std::int64_t{args.table.each}, args.heads.tokens - first));
  }
};

// Few tokens: a block each; many: as many blocks as run at a time, of which a multiprocessor has
// `blocks`.
HeadArgs arguments_of(const Call& call, const position::Heads& heads, int blocks, int most_tokens) {
  const Fields& f = call.fields<Fields>();
  const std::int64_t slots = std::int64_t{blocks} * std::max(call.device.multiprocessors, 1);
  const int each = static_cast<int>(
      std::clamp<std::int64_t>(cuda::ceil_div(heads.tokens, slots), 1, most_tokens));
  const OperandView& output = call.operands[kQueryOutput];
  auto* const invalid = static_cast<std::int64_t*>(call.operands[kInvalid].data);
  const kv_cache::TokenTable table(each);
  const std::int64_t of_token = heads.of_token + (f.value_dim > 0 ? f.key_heads : 0);
  return {heads,
          cache_of(call),
          {output.data, output.strides[0], output.strides[1], f.output_dtype},
          table,
          table.shared_bytes(),
          cuda::Counter(heads.tokens, invalid, call.device),
          cuda::Counter(heads.tokens, invalid + 1, call.device),
          cuda::WideDivider(each, of_token),
          cuda::WideDivider(f.pages, f.page_size)};
}

// `shared_bytes`: behind the table of a block's tokens.
Status launch_tokens(void (*kernel)(HeadArgs), int threads, int shared_bytes, const Device& device,
                     const HeadArgs& args, Bound& bound) {
  const std::int64_t counting = args.no_position.blocks + args.no_slot.blocks;
  cuda::Grid grid = {.blocks = counting + cuda::ceil_div(args.heads.tokens, args.table.each),
                     .threads = dim3(static_cast<unsigned>(threads))};
  grid.shared_bytes = args.table_bytes + shared_bytes;
  // A kernel behind a clearing waits for it by the stream's order.
  grid.dependent = args.no_position.blocks == 1 && has_dependent_launches(device.arch);
  if (args.no_position.blocks > 1)  // both numbers, which are neighbours
    PLANQ_TRY(cuda::clear(args.no_position.total, 2 * sizeof(std::int64_t), bound));
  return cuda::launch(kernel, grid, args, bound);
}

}  // namespace
}  // namespace planq::rotary_kv_cache_append
