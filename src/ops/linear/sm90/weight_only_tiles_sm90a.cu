// The kernels of sm90/weight_only_tiles.cuh and their launch.
#include <utility>

#include "ops/linear/sm90/operands.cuh"
#include "ops/linear/sm90/weight_only_launch.h"
#include "ops/linear/sm90/weight_only_tiles.cuh"

namespace planq::linear::sm90::weight_only {
namespace {

template <int kWidth, bool kShifted>
using ShapeOf = Shape<kWidths[kWidth].tokens, kWidths[kWidth].owners, kWidths[kWidth].sharing,
                      kWidths[kWidth].at_once, kShifted>;

// Calls visit<type of the numbers, shape>() for the kernel of a width.
template <class Visit>
Status visit_kernel(DType values, int width, bool shifted, const Visit& visit) {
  Status status = Status::success();
  const auto one = [&]<int kWidth, bool kShifted>() {
    using S = ShapeOf<kWidth, kShifted>;
    status = values == DType::Float16 ? visit.template operator()<math::Half, S>()
                                      : visit.template operator()<math::Bfloat16, S>();
  };
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    const auto try_width = [&]<int kWidth>() {
      if (kWidth != width) return;
      if (shifted)
        one.template operator()<kWidth, true>();
      else
        one.template operator()<kWidth, false>();
    };
    (try_width.template operator()<static_cast<int>(kIndex)>(), ...);
  }(std::make_index_sequence<kWidths.size()>());
  return status;
}

// Whether StatisticCopies can copy the statistics. Nested ones need one word and one absmax for the
// two statistics of a slice.
bool has_statistics(const WeightCodes& codes) {
  const BlockStatistics& s = codes.statistics;
  const std::int64_t segments = codes.rows * (codes.terms / codes.segment_size);
  if (!codes.has_blocks())
    return codes.scale && codes.scale_row <= cuda::kMaxIndex &&
           codes.zero_point_row <= cuda::kMaxIndex &&
           static_cast<double>(codes.rows) *
                   static_cast<double>(std::max(codes.scale_row, codes.zero_point_row)) <=
               cuda::kMaxIndex;
  if (s.dtype != DType::Float32 || segments > cuda::kMaxIndex) return false;
  if (s.nested_block_size == 0) return true;
  const bool one_word = codes.segment_size == kRun || codes.segment_size % kSlice == 0;
  return one_word && s.nested_block_size % kRuns == 0 && s.nested_block_size <= cuda::kMaxIndex &&
         segments % 4 == 0 && cuda::aligned_to(s.absmax, 4);
}

bool fill(const Gemm& gemm, const Width& width, Args& args) {
  const WeightCodes& codes = *gemm.weight.codes;
  constexpr std::int64_t kTerms = 2;  // in a byte
  const cuda::ByteMatrices matrix{codes.data, codes.terms / kTerms,      codes.rows,
                                  1,          codes.row_stride / kTerms, 0};
  const int columns = width.owners * kGroupColumns;
  if (!cuda::encode_tensor_map(matrix, columns, args.codes_map, cuda::kNarrowBoxBytes) ||
      !cuda::encode_tensor_map(matrices_of(gemm, gemm.input, gemm.m, kMovedInput), width.tokens,
                               args.input_map))
    return false;
  args.input_step = step_of(gemm, kMovedInput);
  args.outputs = outputs_of(gemm);
  args.segments = cuda::Divider(static_cast<std::uint32_t>(codes.segment_size / kRun));
  args.nested = cuda::Divider(
      static_cast<std::uint32_t>(std::max<std::int64_t>(codes.statistics.nested_block_size, 1)));
  args.column_segments = static_cast<std::int32_t>(
      codes.has_blocks() ? codes.terms / codes.segment_size : codes.scale_row);
  args.by_pairs = codes.segment_size == kRun && args.column_segments % kRuns == 0 &&
                  cuda::aligned_to(scales_of(args), sizeof(float2));
  args.slices = static_cast<std::int32_t>(gemm.k / kSlice);
  args.down = static_cast<std::int32_t>(cuda::ceil_div(gemm.m, width.tokens));
  args.across = static_cast<std::int32_t>(cuda::ceil_div(gemm.n, columns));
  const std::int64_t batches = gemm.batch.size();
  args.tiles = static_cast<std::int32_t>(args.down * args.across * batches);
  return can_be_numbered(args.down, args.across, batches * args.slices);
}

}  // namespace

bool takes(const Gemm& gemm) {
  const WeightCodes& codes = *gemm.weight.codes;
  const std::int64_t segment = std::max<std::int64_t>(codes.segment_size, 1);
  return !is_outside(gemm) && gemm.k % kSlice == 0 && segment % kRun == 0 &&
         gemm.k % segment == 0 && gemm.input.term_stride == 1 && has_code_vectors(codes) &&
         (codes.has_blocks() || codes.scale) && has_statistics(codes);
}

Status preload(DType values) {
  for (int width = 0; width < static_cast<int>(kWidths.size()); ++width)
    for (const bool shifted : {false, true})
      PLANQ_TRY(visit_kernel(values, width, shifted, [&]<class T, class S>() {
        return cuda::preload(multiply_dequantized<T, S>, S::kSharedBytes);
      }));
  return Status::success();
}

Status launch(const Gemm& gemm, int width, const Device& device, Bound& bound, bool& launched) {
  const WeightCodes& codes = *gemm.weight.codes;
  Args args(codes);
  launched = fill(gemm, kWidths[width], args);
  if (!launched) return Status::success();
  args.waits = bound.follows();
  return visit_kernel(
      gemm.weight.dtype, width, codes.zero_point != nullptr, [&]<class T, class S>() {
        const cuda::Grid grid{.blocks = std::min<std::int64_t>(args.tiles, device.multiprocessors),
                              .threads = dim3(S::kThreads),
                              .dependent = bound.follows(),
                              .shared_bytes = S::kSharedBytes};
        return cuda::launch(multiply_dequantized<T, S>, grid, args, bound);
      });
}

}  // namespace planq::linear::sm90::weight_only
