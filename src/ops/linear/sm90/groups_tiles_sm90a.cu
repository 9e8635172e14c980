// Which gemms the kernels of sm90/groups_tiles.cuh take, and their launch.
#include "ops/linear/sm90/groups_tiles_ring.cuh"

#include <array>

#include "ops/linear/sm90/groups_codes.h"
#include "ops/linear/sm90/groups_launch.h"
#include "ops/linear/sm90/groups_tiles_launch.h"
#include "ops/linear/sm90/listed_tiles.cuh"
#include "ops/linear/sm90/operands.cuh"

namespace planq::linear::sm90::groups::tiles {
namespace {

// Calls one of the functions that groups_tiles_launch.h lists, all of them in the same order.
template <class Function, class... Arguments>
Status call(const CodeKind& kind, const std::array<Function*, 8>& functions,
            Arguments&... arguments) {
  const std::size_t nibbles = kind.high_first ? 2 : 0;
  const std::size_t codes = kind.has_codebook ? 4 : is_four_bit(kind.dtype) ? nibbles : 6;
  return functions[codes + (kind.values == DType::Float16 ? 0 : 1)](kind, arguments...);
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
  args.segments = cuda::Divider(
      static_cast<std::uint32_t>(std::max<std::int64_t>(codes.segment_size / kSlice, 1)));
  args.nested = cuda::Divider(
      static_cast<std::uint32_t>(std::max<std::int64_t>(scales.stored.nested_block_size, 1)));
  args.column_segments = static_cast<std::int32_t>(scales.pitch);
  args.scale_bytes =
      scales.pitch * storage_bytes(scales.are_nested() ? DType::UInt8 : scales.stored.dtype);
  args.zero_point_bytes = codes.zero_point_row * storage_bytes(codes.zero_point_dtype);
  args.last_segment = static_cast<std::int32_t>((gemm.k - 1) / codes.segment_size);
  args.terms = static_cast<std::int32_t>(gemm.k);
  args.slices = static_cast<std::int32_t>(cuda::ceil_div(gemm.k, kSlice));
  args.span_slices = static_cast<std::int32_t>(span_terms(gemm.k) / kSlice);
  args.table_pitch = kPairPitch;
  sm90::TileGrid& grid = args.grid;
  grid.down = static_cast<std::int32_t>(cuda::ceil_div(gemm.m, width.tokens));
  grid.across = static_cast<std::int32_t>(cuda::ceil_div(gemm.n, columns));
  grid.band = std::min(sm90::kBand * sm90::kTileRows / width.tokens, grid.down);
  const std::int64_t batches = gemm.batch.size();
  grid.count = static_cast<std::uint32_t>(std::int64_t{grid.down} * grid.across * batches);
  return can_be_numbered(grid.down, grid.across, batches * (math::kSpans * args.span_slices));
}

}  // namespace

Status preload(const CodeKind& kind) {
  if (!has_kernels(kind)) return Status::success();
  return call<Status(const CodeKind&)>(
      kind, {preload_nibbles_f16, preload_nibbles_bf16, preload_high_nibbles_f16,
             preload_high_nibbles_bf16, preload_table_f16, preload_table_bf16, preload_bytes_f16,
             preload_bytes_bf16});
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

// All experts' weights as one. They have to lie one after another.
bool join(const Experts& experts, WeightCodes& codes) {
  const std::int64_t n = experts.gemm.n;
  codes = experts.codes;
  codes.rows = experts.count * n;
  if (codes.rows > cuda::kMaxIndex) return false;
  return experts.count == 1 ||
         (experts.code_step == n * codes.row_stride &&
          experts.scale_step == n * codes.scales.pitch &&
          (!codes.zero_point || experts.zero_point_step == n * codes.zero_point_row));
}

Status launch_kernel(const CodeKind& kind, const Launch& launch, Bound& bound) {
  return call<Status(const CodeKind&, const Launch&, Bound&)>(
      kind,
      {launch_nibbles_f16, launch_nibbles_bf16, launch_high_nibbles_f16, launch_high_nibbles_bf16,
       launch_table_f16, launch_table_bf16, launch_bytes_f16, launch_bytes_bf16},
      launch, bound);
}

}  // namespace

std::size_t experts_workspace(std::int64_t rows, std::int64_t experts) {
  Scratch scratch;
  (void)sm90::ExpertRoom(rows, experts, kTileWidths[0].tokens, scratch);
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
  const int index = choose_width(gemm.m, experts.count, kind_of(codes).run);
  const TileWidth& width = kTileWidths[static_cast<std::size_t>(index)];
  Args args(codes);
  if (!fill(gemm, width, args)) return Status::success();
  launched = true;
  Scratch scratch(call.workspace);
  const sm90::ExpertRoom room(gemm.m, experts.count, width.tokens, scratch);
  PLANQ_TRY(sm90::list_tiles(experts, width.tokens, room, call.device, bound));
  args.waits = 0;
  args.input_step = 0;
  args.expert_tiles = room.tiles;
  args.expert_count = room.count;
  args.expert_rows = static_cast<std::int32_t>(gemm.n);
  args.outputs.bias_batch = experts.bias_step;
  const std::int64_t most =
      sm90::most_expert_tiles(gemm.m, experts.count, width.tokens) * args.grid.across;
  return launch_kernel(
      kind_of(codes),
      {&args, index, std::min<std::int64_t>(most, call.device.multiprocessors), false}, bound);
}

Status launch(const Gemm& gemm, int width, const Device& device, Bound& bound, bool& launched) {
  const WeightCodes& codes = *gemm.weight.codes;
  Args args(codes);
  launched = fill(gemm, kTileWidths[static_cast<std::size_t>(width)], args);
  if (!launched) return Status::success();
  args.waits = bound.follows();
  return launch_kernel(
      kind_of(codes),
      {&args, width, std::min<std::int64_t>(args.grid.count, device.multiprocessors),
       bound.follows()},
      bound);
}

}  // namespace planq::linear::sm90::groups::tiles
