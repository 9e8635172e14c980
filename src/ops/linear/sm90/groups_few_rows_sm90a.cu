// The kernels of sm90/groups_few_rows.cuh and their launch.
#include "ops/linear/sm90/groups_few_rows.cuh"

#include <algorithm>
#include <array>
#include <atomic>

#include "ops/linear/sm90/groups_launch.h"

namespace planq::linear::sm90::groups::few_rows {
namespace {

inline constexpr int kMostShared = 227 * 1024;
inline constexpr int kMostCluster = kSpans;

// Whether there are kernels for a kind of codes. Those of 8 bits have scales of channels or of long
// groups.
inline constexpr int kLongRun = math::kMostRunTerms;
bool has_kernels(const CodeKind& kind) {
  return kind.run >= (is_four_bit(kind.dtype) ? kUnit : kLongRun);
}

RegisterCodes codes_of(const CodeKind& kind) {
  if (kind.has_blocks) return RegisterCodes::Table;
  return is_four_bit(kind.dtype) ? RegisterCodes::Nibbles : RegisterCodes::Bytes;
}

// Calls visit<shape>() for the kernel of a weight and some tokens.
template <class T, RegisterCodes kCodes, bool kSecond, int kRun, class Visit>
Status visit_tokens(std::int64_t tokens, const Visit& visit) {
  return tokens <= kTokens ? visit.template operator()<Shape<T, kCodes, kSecond, kRun, 1>>()
                           : visit.template operator()<Shape<T, kCodes, kSecond, kRun, 2>>();
}
template <class T, RegisterCodes kCodes, bool kSecond, class Visit>
Status visit_runs(int run, std::int64_t tokens, const Visit& visit) {
  switch (run) {
    case 32:
      return visit_tokens<T, kCodes, kSecond, 32>(tokens, visit);
    case 64:
      return visit_tokens<T, kCodes, kSecond, 64>(tokens, visit);
    default:
      return visit_tokens<T, kCodes, kSecond, 128>(tokens, visit);
  }
}
template <class T, RegisterCodes kCodes, class Visit>
Status visit_seconds(const CodeKind& kind, std::int64_t tokens, const Visit& visit) {
  return kind.has_zero_points || kind.has_nested
             ? visit_runs<T, kCodes, true>(kind.run, tokens, visit)
             : visit_runs<T, kCodes, false>(kind.run, tokens, visit);
}
template <class T, class Visit>
Status visit_codes(const CodeKind& kind, std::int64_t tokens, const Visit& visit) {
  switch (codes_of(kind)) {
    case RegisterCodes::Table:
      return visit_seconds<T, RegisterCodes::Table>(kind, tokens, visit);
    case RegisterCodes::Nibbles:
      return visit_seconds<T, RegisterCodes::Nibbles>(kind, tokens, visit);
    default:
      return kind.has_zero_points
                 ? visit_tokens<T, RegisterCodes::Bytes, true, kLongRun>(tokens, visit)
                 : visit_tokens<T, RegisterCodes::Bytes, false, kLongRun>(tokens, visit);
  }
}
template <class Visit>
Status visit_shape(const CodeKind& kind, std::int64_t tokens, const Visit& visit) {
  return kind.values == DType::Float16 ? visit_codes<math::Half>(kind, tokens, visit)
                                       : visit_codes<math::Bfloat16>(kind, tokens, visit);
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
  room.nested = take(S::kNested ? kNestedEntries * 4 : 0);
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

Args args_of(const Gemm& gemm) {
  const WeightCodes& codes = *gemm.weight.codes;
  Args args(codes);
  args.gemm = gemm;
  args.segments = cuda::Divider(static_cast<std::uint32_t>(
      std::max<std::int64_t>(codes.segment_size / math::kMostRunTerms, 1)));
  args.nested = cuda::Divider(
      static_cast<std::uint32_t>(std::max<std::int64_t>(codes.statistics.nested_block_size, 1)));
  args.pitch = static_cast<std::int32_t>(codes.has_blocks() ? codes.terms / codes.segment_size
                                                            : codes.scale_row);
  args.zero_point_pitch = static_cast<std::int32_t>(codes.zero_point_row);
  args.span = static_cast<std::int32_t>(span_terms(gemm.k));
  args.table_pitch = kPairPitch;
  return args;
}

bool has_aligned_codes(const WeightCodes& codes) {
  const std::int64_t per_vector = cuda::kVectorBytes * (is_four_bit(codes.dtype) ? 2 : 1);
  return codes.layout == WeightLayout::RowMajor && cuda::aligned_to(codes.data, 16) &&
         codes.row_stride % per_vector == 0 && codes.terms % per_vector == 0;
}
// Statistics are numbered by 32 bits without a sign.
bool has_statistics(const WeightCodes& codes) {
  const BlockStatistics& s = codes.statistics;
  const std::int64_t pitch =
      codes.has_blocks() ? codes.terms / codes.segment_size : codes.scale_row;
  const std::int64_t least = std::min(pitch, codes.zero_point_row);
  const std::int64_t most = std::max(pitch, codes.zero_point_row);
  if (least < 0 || static_cast<double>(codes.rows) * static_cast<double>(most) > cuda::kMaxIndex)
    return false;
  return s.dtype == DType::Float32 && s.nested_block_size <= cuda::kMaxIndex;
}
bool has_input(const Gemm& gemm) {
  return !gemm.input.transposed() && cuda::aligned_to(gemm.input.data, 8) &&
         gemm.input.row_stride % 4 == 0;
}

}  // namespace

Status preload(const CodeKind& kind) {
  if (!has_kernels(kind)) return Status::success();
  for (const int tokens : {kTokens, kMostRows})
    PLANQ_TRY(visit_shape(
        kind, tokens, [&]<class S>() { return cuda::preload(multiply_few_rows<S>, kMostShared); }));
  return Status::success();
}

bool takes(const Gemm& gemm) {
  const WeightCodes& codes = *gemm.weight.codes;
  constexpr std::int64_t kMost = cuda::kMaxIndex / 2;
  const bool small = gemm.m <= kMostRows && gemm.k <= kMost && gemm.n <= kMost;
  if (!small || gemm.empty() || gemm.k == 0 || gemm.batch.size() != 1) return false;
  if (!has_kernels(kind_of(codes)) || !has_aligned_codes(codes) || !has_statistics(codes) ||
      !has_input(gemm))
    return false;
  bool fits = false;
  (void)visit_shape(kind_of(codes), gemm.m, [&]<class S>() {
    Args args = args_of(gemm);
    fits = fill_room<S>(args);
    return Status::success();
  });
  return fits;
}

Status launch(const Gemm& gemm, const Device& device, Bound& bound) {
  return visit_shape(kind_of(*gemm.weight.codes), gemm.m, [&]<class S>() {
    Args args = args_of(gemm);
    fill_room<S>(args);
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
