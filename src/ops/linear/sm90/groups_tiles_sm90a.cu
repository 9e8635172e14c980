// The kernels of sm90/groups_tiles.cuh and their launch.
#include "ops/linear/sm90/groups_tiles.cuh"

#include <bit>

#include "core/scratch.h"
#include "ops/linear/sm90/groups_launch.h"
#include "ops/linear/sm90/operands.cuh"

namespace planq::linear::sm90::groups::tiles {
namespace {

// Whether there are kernels for a kind of codes. Those of 8 bits are integers without zero points,
// and have scales of channels or of long groups.
bool has_kernels(const CodeKind& kind) {
  if (is_fp8(kind.dtype)) return false;
  return is_four_bit(kind.dtype) ? kind.run >= kHalf : kind.run == kSlice && !kind.has_zero_points;
}

// Calls visit<shape>() for a kernel of kTileWidths.
template <class T, int kWidth, class Visit>
Status visit_codes(const CodeKind& kind, const Visit& visit) {
  constexpr TileWidth kOwn = kTileWidths[kWidth];
  const auto one = [&]<RegisterCodes kCodes, int kRun, bool kShifted>() {
    return visit.template
    operator()<Shape<T, kCodes, kOwn.tokens, kOwn.owners, kOwn.sharing, kRun, kShifted>>();
  };
  using enum RegisterCodes;
  if (!is_four_bit(kind.dtype)) return one.template operator()<Bytes, kSlice, false>();
  if (kind.run == kHalf)
    return kind.has_zero_points ? one.template operator()<Table, kHalf, true>()
                                : one.template operator()<Table, kHalf, false>();
  return kind.has_zero_points ? one.template operator()<Table, kSlice, true>()
                              : one.template operator()<Table, kSlice, false>();
}
template <class T, class Visit>
Status visit_widths(const CodeKind& kind, int width, const Visit& visit) {
  static_assert(kTileWidths.size() == 3);
  switch (width) {
    case 0:
      return visit_codes<T, 0>(kind, visit);
    case 1:
      return visit_codes<T, 1>(kind, visit);
    default:
      return visit_codes<T, 2>(kind, visit);
  }
}
template <class Visit>
Status visit_kernel(const CodeKind& kind, int width, const Visit& visit) {
  return kind.values == DType::Float16 ? visit_widths<math::Half>(kind, width, visit)
                                       : visit_widths<math::Bfloat16>(kind, width, visit);
}

// Whether numbers of this type, `count` in all, are whole words of memory.
bool are_words(const void* from, std::int64_t count, DType dtype) {
  return cuda::aligned_to(from, 4) && count * storage_bytes(dtype) % 4 == 0;
}
int shift_of(DType dtype) { return std::countr_zero(static_cast<unsigned>(storage_bytes(dtype))); }

// Whether StatisticCopies can copy the statistics. Nested ones need one word and one absmax for the
// two statistics of a slice.
bool has_statistics(const WeightCodes& codes) {
  const BlockStatistics& s = codes.scales.stored;
  const std::int64_t pitch = codes.scales.pitch;
  const std::int64_t least = std::min(pitch, codes.zero_point_row);
  const std::int64_t most = std::max(pitch, codes.zero_point_row);
  if (least < 0 || static_cast<double>(codes.rows) * static_cast<double>(most) > cuda::kMaxIndex)
    return false;
  if (!codes.scales.are_nested())
    return are_words(s.absmax, codes.rows * pitch, s.dtype) &&
           (!codes.zero_point ||
            are_words(codes.zero_point, codes.rows * codes.zero_point_row, codes.zero_point_dtype));
  const bool one_word = codes.segment_size == kHalf || codes.segment_size % kSlice == 0;
  return one_word && s.nested_block_size % kHalves == 0 && s.nested_block_size <= cuda::kMaxIndex &&
         codes.rows * pitch % 4 == 0 && cuda::aligned_to(s.absmax, 4);
}

// Whether TMA can read the codes: rows are whole vectors.
bool has_aligned_rows(const WeightCodes& codes) {
  const std::int64_t per_vector = cuda::kVectorBytes * (is_four_bit(codes.dtype) ? 2 : 1);
  return codes.layout == WeightLayout::RowMajor && codes.terms % per_vector == 0 &&
         codes.row_stride % per_vector == 0 && cuda::aligned_to(codes.data, cuda::kVectorBytes);
}

bool fill(const Gemm& gemm, const TileWidth& width, Args& args) {
  const WeightCodes& codes = *gemm.weight.codes;
  const SegmentScales& scales = codes.scales;
  const std::int64_t per_byte = is_four_bit(codes.dtype) ? 2 : 1;
  const cuda::ByteMatrices matrix{codes.data, codes.terms / per_byte,      codes.rows,
                                  1,          codes.row_stride / per_byte, 0};
  const int columns = width.owners * kGroupColumns;
  const int box = is_four_bit(codes.dtype) ? cuda::kNarrowBoxBytes : cuda::kBoxBytes;
  if (!cuda::encode_tensor_map(matrix, columns, args.codes_map, box) ||
      !cuda::encode_tensor_map(matrices_of(gemm, gemm.input, gemm.m, kMovedInput), width.tokens,
                               args.input_map))
    return false;
  args.input_step = step_of(gemm, kMovedInput);
  args.outputs = outputs_of(gemm);
  args.segments = cuda::Divider(static_cast<std::uint32_t>(codes.segment_size / kHalf));
  args.nested = cuda::Divider(
      static_cast<std::uint32_t>(std::max<std::int64_t>(scales.stored.nested_block_size, 1)));
  args.column_segments = static_cast<std::int32_t>(scales.pitch);
  args.scale_shift = scales.are_nested() ? 0 : shift_of(scales.stored.dtype);
  args.zero_point_shift = shift_of(codes.zero_point_dtype);
  args.by_pairs = codes.segment_size == kHalf && args.column_segments % kHalves == 0 &&
                  cuda::aligned_to(scales.stored.absmax, sizeof(float2));
  args.slices = static_cast<std::int32_t>(cuda::ceil_div(gemm.k, kSlice));
  args.span_slices = static_cast<std::int32_t>(span_terms(gemm.k) / kSlice);
  args.table_pitch = kPairPitch;
  args.down = static_cast<std::int32_t>(cuda::ceil_div(gemm.m, width.tokens));
  args.across = static_cast<std::int32_t>(cuda::ceil_div(gemm.n, columns));
  const std::int64_t batches = gemm.batch.size();
  args.tiles = static_cast<std::int32_t>(args.down * args.across * batches);
  return can_be_numbered(args.down, args.across, batches * (math::kSpans * args.span_slices));
}

}  // namespace

Status preload(const CodeKind& kind) {
  if (!has_kernels(kind)) return Status::success();
  for (int width = 0; width < static_cast<int>(kTileWidths.size()); ++width)
    PLANQ_TRY(visit_kernel(
        kind, width, [&]<class S>() { return cuda::preload(multiply_tiles<S>, S::kSharedBytes); }));
  return Status::success();
}

bool takes(const Gemm& gemm) {
  const WeightCodes& codes = *gemm.weight.codes;
  // TMA has zeros beyond k, in the input and in the codes. A given codebook may have an infinity
  // there, which would be no zero beside one.
  const bool whole = gemm.k % kSlice == 0;
  return !gemm.empty() && has_kernels(kind_of(codes)) && has_aligned_rows(codes) &&
         !is_outside(gemm) && has_statistics(codes) && (whole || !codes.codebook_is_operand);
}

namespace {

// The tiles that expert_tiles.cuh lists, in the workspace.
struct ExpertRoom {
  sm90::ExpertTile* tiles;
  std::int32_t* count;

  ExpertRoom(std::int64_t rows, std::int64_t experts, Scratch& scratch)
      : tiles(scratch.take<sm90::ExpertTile>(static_cast<std::size_t>(
            sm90::most_expert_tiles(rows, experts, kTileWidths[0].tokens)))),
        count(scratch.take<std::int32_t>(1)) {}
};

// All experts' weights as one. They have to lie one after another.
bool join(const Experts& experts, WeightCodes& codes) {
  const std::int64_t n = experts.gemm.n;
  codes = experts.codes;
  codes.rows = experts.count * n;
  if (codes.scales.tensor_scale || codes.rows > cuda::kMaxIndex) return false;
  return experts.count == 1 ||
         (experts.code_step == n * codes.row_stride &&
          experts.scale_step == n * codes.scales.pitch &&
          (!codes.zero_point || experts.zero_point_step == n * codes.zero_point_row));
}

Status list_tiles(const Experts& experts, int tokens, const ExpertRoom& room, const Device& device,
                  Bound& bound) {
  const Gemm& gemm = experts.gemm;
  const std::int64_t pairs = linear::detail::element_bytes(gemm.output_dtype) / 2;
  const sm90::ExpertTileArgs args{experts.offset,
                                  static_cast<std::int32_t>(experts.count),
                                  static_cast<std::int32_t>(gemm.m),
                                  tokens,
                                  room.tiles,
                                  room.count,
                                  reinterpret_cast<std::uint16_t*>(gemm.output),
                                  gemm.n * pairs,
                                  gemm.output_row * pairs};
  const cuda::Grid grid{.blocks = 1 + std::min<std::int64_t>(gemm.m, device.multiprocessors),
                        .threads = dim3(kMostExperts)};
  return cuda::launch(sm90::list_expert_tiles, grid, args, bound);
}

}  // namespace

std::size_t experts_workspace(std::int64_t rows, std::int64_t experts) {
  Scratch scratch;
  (void)ExpertRoom(rows, experts, scratch);
  return scratch.bytes();
}

Status preload_experts(const CodeKind& kind) {
  PLANQ_TRY(cuda::preload(sm90::list_expert_tiles));
  return preload(kind);
}

Status launch_experts(const Experts& experts, const Call& call, Bound& bound, bool& launched) {
  launched = false;
  WeightCodes codes;
  Gemm gemm = experts.gemm;
  if (!join(experts, codes)) return Status::success();
  gemm.weight.codes = &codes;
  if (!takes(gemm)) return Status::success();
  const int index = choose_width(gemm.m, experts.count);
  const TileWidth& width = kTileWidths[static_cast<std::size_t>(index)];
  Args args(codes);
  if (!fill(gemm, width, args)) return Status::success();
  launched = true;
  Scratch scratch(call.workspace);
  const ExpertRoom room(gemm.m, experts.count, scratch);
  PLANQ_TRY(list_tiles(experts, width.tokens, room, call.device, bound));
  args.waits = 0;
  args.input_step = 0;
  args.expert_tiles = room.tiles;
  args.expert_count = room.count;
  args.expert_rows = static_cast<std::int32_t>(gemm.n);
  args.outputs.bias_batch = experts.bias_step;
  const std::int64_t most =
      sm90::most_expert_tiles(gemm.m, experts.count, width.tokens) * args.across;
  return visit_kernel(kind_of(codes), index, [&]<class S>() {
    const cuda::Grid grid{.blocks = std::min<std::int64_t>(most, call.device.multiprocessors),
                          .threads = dim3(S::kThreads),
                          .shared_bytes = S::kSharedBytes};
    return cuda::launch(multiply_tiles<S>, grid, args, bound);
  });
}

Status launch(const Gemm& gemm, int width, const Device& device, Bound& bound, bool& launched) {
  const WeightCodes& codes = *gemm.weight.codes;
  Args args(codes);
  launched = fill(gemm, kTileWidths[static_cast<std::size_t>(width)], args);
  if (!launched) return Status::success();
  args.waits = bound.follows();
  return visit_kernel(kind_of(codes), width, [&]<class S>() {
    const cuda::Grid grid{.blocks = std::min<std::int64_t>(args.tiles, device.multiprocessors),
                          .threads = dim3(S::kThreads),
                          .dependent = bound.follows(),
                          .shared_bytes = S::kSharedBytes};
    return cuda::launch(multiply_tiles<S>, grid, args, bound);
  });
}

}  // namespace planq::linear::sm90::groups::tiles
