// The kernels of sm90/groups_few_rows.cuh for one type of numbers, and their launch. Each type has
// a file of its own, since they take long to compile.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>

#include "ops/linear/sm90/groups_few_rows.cuh"
#include "ops/linear/sm90/groups_few_rows_launch.h"
#include "ops/linear/sm90/groups_launch.h"

namespace planq::linear::sm90::groups::few_rows {

inline constexpr int kMostShared = 227 * 1024;
inline constexpr int kMostCluster = kSpans;

inline constexpr int kLongRun = math::kMostRunTerms;

inline RegisterCodes codes_of(const CodeKind& kind) {
  if (kind.has_codebook) return RegisterCodes::Table;
  if (is_four_bit(kind.dtype)) return RegisterCodes::Nibbles;
  return is_fp8(kind.dtype) ? RegisterCodes::Floats : RegisterCodes::Bytes;
}

// Calls visit<shape>() for the kernel of a weight and some tokens.
template <class T, RegisterCodes kCodes, bool kShifted, bool kWords, int kRun, class Visit>
Status visit_tokens(std::int64_t tokens, const Visit& visit) {
  return tokens <= kTokens
             ? visit.template operator()<Shape<T, kCodes, kShifted, kWords, kRun, 1>>()
             : visit.template operator()<Shape<T, kCodes, kShifted, kWords, kRun, 2>>();
}
// Those of 4 bits have runs of a unit and more.
template <class T, RegisterCodes kCodes, bool kShifted, bool kWords, class Visit>
Status visit_runs(int run, std::int64_t tokens, const Visit& visit) {
  if (run == 32) return visit_tokens<T, kCodes, kShifted, kWords, 32>(tokens, visit);
  if (run == 64) return visit_tokens<T, kCodes, kShifted, kWords, 64>(tokens, visit);
  return visit_tokens<T, kCodes, kShifted, kWords, kLongRun>(tokens, visit);
}
template <class T, class Visit>
Status visit_table(const CodeKind& kind, std::int64_t tokens, const Visit& visit) {
  constexpr auto kTable = RegisterCodes::Table;
  if (kind.run == kUnit / 2) return visit_tokens<T, kTable, false, false, 16>(tokens, visit);
  return kind.has_words ? visit_runs<T, kTable, false, true>(kind.run, tokens, visit)
                        : visit_runs<T, kTable, false, false>(kind.run, tokens, visit);
}
template <class T, class Visit>
Status visit_nibbles(const CodeKind& kind, std::int64_t tokens, const Visit& visit) {
  constexpr auto kNibbles = RegisterCodes::Nibbles;
  if (kind.has_zero_points) return visit_runs<T, kNibbles, true, false>(kind.run, tokens, visit);
  return kind.has_words ? visit_runs<T, kNibbles, false, true>(kind.run, tokens, visit)
                        : visit_runs<T, kNibbles, false, false>(kind.run, tokens, visit);
}
template <class T, class Visit>
Status visit_bytes(const CodeKind& kind, std::int64_t tokens, const Visit& visit) {
  constexpr auto kBytes = RegisterCodes::Bytes;
  if (kind.has_zero_points) return visit_tokens<T, kBytes, true, false, kLongRun>(tokens, visit);
  return kind.has_words ? visit_tokens<T, kBytes, false, true, kLongRun>(tokens, visit)
                        : visit_tokens<T, kBytes, false, false, kLongRun>(tokens, visit);
}
template <class T, class Visit>
Status visit_codes(const CodeKind& kind, std::int64_t tokens, const Visit& visit) {
  constexpr auto kFloats = RegisterCodes::Floats;
  switch (codes_of(kind)) {
    case RegisterCodes::Table:
      return visit_table<T>(kind, tokens, visit);
    case RegisterCodes::Nibbles:
      return visit_nibbles<T>(kind, tokens, visit);
    case RegisterCodes::Bytes:
      return visit_bytes<T>(kind, tokens, visit);
    default:
      return kind.run == kUnit ? visit_tokens<T, kFloats, false, false, 32>(tokens, visit)
                               : visit_tokens<T, kFloats, false, false, kLongRun>(tokens, visit);
  }
}

// Clusters of this size that the device runs at a time, of blocks that each need a multiprocessor.
template <class S>
int clusters_at_once(int size, const Device& device) {
  static std::array<std::atomic<int>, kMostCluster + 1> known[16];
  std::atomic<int>* const cached =
      device.index < 16 ? &known[device.index][static_cast<std::size_t>(size)] : nullptr;
  if (cached && cached->load() > 0) return cached->load();
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(size));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kMostShared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  if (cudaOccupancyMaxActiveClusters(&count, multiply_few_rows<S>, &config) != cudaSuccess)
    count = 0;
  count = std::max(count, 1);
  if (cached) cached->store(count);
  return count;
}

// What a block of a cluster of `cluster` needs.
template <class S>
Room room_of(const Gemm& gemm, int span, int cluster, int buffers) {
  Room room{};
  const auto take = [&](int bytes) {
    const int at = room.bytes;
    room.bytes += (bytes + 127) / 128 * 128;
    return at;
  };
  const int tokens = static_cast<int>(gemm.m);
  take(Parts::kBarrierBytes);
  room.table = take(S::kHasTable ? kPairBytes : 0);
  room.scale_values = take(S::kWords ? 0 : kScaleValues * 4);
  room.ring = take(kRingBytes);
  room.statistics = take(kWarps * kStages * S::kStatisticBytes);
  // Two more numbers keep columns in different banks.
  room.part_pitch = (tokens + 1) / 2 * 2 + (tokens > 2 ? 2 : 0);
  room.part_bytes = kSpans * kBlockColumns * room.part_pitch * 4;
  room.buffers = buffers;
  room.parts = take(buffers * room.part_bytes);
  room.token_pitch = kSpans / cluster * span * 2 + 64;
  room.input = take(tokens * room.token_pitch);
  return room;
}

// Whether clusters of some size have room. Sets the arguments for the smallest. From five tokens on
// pairs were faster than single blocks, which take longer to bring the input.
template <class S>
bool fill_room(Args& args) {
  for (int cluster = args.gemm.m > 4 ? 2 : 1; cluster <= kMostCluster; cluster *= 2)
    for (int buffers = Parts::kMostBuffers; buffers > 0; --buffers) {
      args.room = room_of<S>(args.gemm, args.span, cluster, buffers);
      if (args.room.bytes > kMostShared) continue;
      args.cluster = cluster;
      return true;
    }
  return false;
}

inline Args args_of(const Gemm& gemm) {
  const WeightCodes& codes = *gemm.weight.codes;
  Args args(codes);
  args.gemm = gemm;
  args.segments = cuda::Divider(static_cast<std::uint32_t>(
      std::max<std::int64_t>(codes.segment_size / math::kMostRunTerms, 1)));
  args.nested = cuda::Divider(
      static_cast<std::uint32_t>(std::max<std::int64_t>(codes.scales.stored.nested_block_size, 1)));
  args.pitch = static_cast<std::int32_t>(codes.scales.pitch);
  args.zero_point_pitch = static_cast<std::int32_t>(codes.zero_point_row);
  args.span = static_cast<std::int32_t>(span_terms(gemm.k));
  args.table_pitch = kPairPitch;
  return args;
}

// --- What the files of types have ----------------------------------------------------------------

template <class T>
Status preload_type(const CodeKind& kind) {
  for (const int tokens : {kTokens, kMostRows})
    PLANQ_TRY(visit_codes<T>(
        kind, tokens, [&]<class S>() { return cuda::preload(multiply_few_rows<S>, kMostShared); }));
  return Status::success();
}

// Sets `launched` to false, and launches nothing, if no cluster has room.
template <class T>
Status launch_type(const Gemm& gemm, const Device& device, Bound& bound, bool& launched) {
  return visit_codes<T>(kind_of(*gemm.weight.codes), gemm.m, [&]<class S>() {
    Args args = args_of(gemm);
    launched = fill_room<S>(args);
    if (!launched) return Status::success();
    const int columns = args.cluster * kBlockColumns;
    args.tiles = static_cast<std::int32_t>(cuda::ceil_div(gemm.n, columns));
    const int most =
        args.cluster == 1 ? device.multiprocessors : clusters_at_once<S>(args.cluster, device);
    const int clusters = std::min(args.tiles, most);
    const cuda::Grid grid{.blocks = std::int64_t{clusters} * args.cluster,
                          .threads = dim3(kThreads),
                          .cluster = args.cluster,
                          .dependent = bound.follows(),
                          .shared_bytes = args.room.bytes};
    return cuda::launch(multiply_few_rows<S>, grid, args, bound);
  });
}

}  // namespace planq::linear::sm90::groups::few_rows
