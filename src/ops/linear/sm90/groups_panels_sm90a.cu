// The kernels of sm90/groups_panels.cuh, the panels that they read, and their launch.
#include "ops/linear/sm90/groups_panels.cuh"

#include "core/scratch.h"
#include "ops/linear/simt/launch.h"
#include "ops/linear/sm90/groups_launch.h"
#include "ops/linear/sm90/operands.cuh"
#include "ops/linear/weight_only/panels.cuh"
#include "ops/linear/weight_only/register_codes.cuh"

namespace planq::linear::sm90::groups::panels {
namespace {

// Calls visit<shape>() for the kernel of a kind of codes.
template <class T, class Visit>
Status visit_runs(int run, const Visit& visit) {
  switch (run) {
    case 16:
      return visit.template operator()<Shape<T, 16>>();
    case 32:
      return visit.template operator()<Shape<T, 32>>();
    case 64:
      return visit.template operator()<Shape<T, 64>>();
    default:
      return visit.template operator()<Shape<T, 128>>();
  }
}
template <class Visit>
Status visit_kernel(const CodeKind& kind, const Visit& visit) {
  return kind.values == DType::Float16 ? visit_runs<math::Half>(kind.run, visit)
                                       : visit_runs<math::Bfloat16>(kind.run, visit);
}

// --- Numbers of a panel --------------------------------------------------------------------------

// A thread writes a vector of numbers at a time.
inline constexpr int kVectorTerms = 8;
inline constexpr int kWriteThreads = 256, kWriteBlocks = 6;  // on a multiprocessor

struct NumbersArgs : CodesArgs {
  using CodesArgs::CodesArgs;
  std::int64_t first;         // row of the weight
  std::uint32_t count;        // vectors
  cuda::Divider row_vectors;  // divides by the vectors of a row
  cuda::Divider segments;     // divides by the vectors of a segment
  std::int32_t in_row;        // vectors
  std::uint32_t table_pitch;
  uint4* to;
};

// Four bytes of 4-bit codes to numbers: each byte is looked up in the table. kShifted: less a zero
// point.
template <class T, bool kShifted>
__device__ __forceinline__ uint4 numbers_of(std::uint32_t word, cuda::SharedAddress table,
                                            std::uint32_t pitch, std::uint32_t shift) {
  std::uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[i] = cuda::load_shared_word(table + (word >> 8 * i & 255) * pitch);
    if constexpr (kShifted) pairs[i] = pair_difference<T>(pairs[i], shift);
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// A grid of any size. The codes of a row are whole words (of 4 bits, by a table) or pairs of words
// (of 8).
template <class T, RegisterCodes kCodes, bool kShifted>
__global__ void __launch_bounds__(kWriteThreads)
    write_numbers(const __grid_constant__ NumbersArgs args) {
  constexpr int kBits = has_bytes(kCodes) ? 8 : 4;
  extern __shared__ __align__(128) std::uint8_t memory[];
  const cuda::SharedAddress table = cuda::shared_address(memory);
  if constexpr (kBits == 4) {
    fill_pairs<T, kWriteThreads / cuda::kWarp>(args, table);
    __syncthreads();
  }
  const cuda::SharedAddress own = table + threadIdx.x % cuda::kWarp * 4;
  const RegisterDecoder<T, kCodes> decoder(args, table);
  const WeightCodes& codes = args.codes;
  const std::uint32_t step = gridDim.x * kWriteThreads;
#pragma unroll 4
  for (std::uint32_t i = blockIdx.x * kWriteThreads + threadIdx.x; i < args.count; i += step) {
    const std::uint32_t row = args.row_vectors.quotient(i), at = i - row * args.in_row;
    const std::int64_t weight_row = args.first + row;
    const std::uint8_t* from =
        codes.data + (weight_row * codes.row_stride + at * kVectorTerms) * kBits / 8;
    std::int32_t zero_point = 0;
    if constexpr (kShifted)
      zero_point = codes.stored_zero_point(weight_row, args.segments.quotient(at));
    if constexpr (kBits == 4) {
      const auto number = static_cast<float>(counted_zero_point(DType::UInt4, zero_point));
      args.to[i] = numbers_of<T, kShifted>(__ldg(reinterpret_cast<const std::uint32_t*>(from)), own,
                                           args.table_pitch, cuda::pair_of(number, number, T{}));
    } else {
      const uint2 words = __ldg(reinterpret_cast<const uint2*>(from));
      std::uint32_t shift = decoder.unshifted();
      if constexpr (kShifted) shift = decoder.shifted(zero_point);
      args.to[i] = make_uint4(decoder.pair(words.x, 0, shift), decoder.pair(words.x, 1, shift),
                              decoder.pair(words.y, 0, shift), decoder.pair(words.y, 1, shift));
    }
  }
}

// Calls visit(kernel, its shared memory) for the kernel that writes the numbers of a kind of codes.
template <class T, class Visit>
Status visit_writer(const CodeKind& kind, const Visit& visit) {
  using enum RegisterCodes;
  if (is_four_bit(kind.dtype))
    return kind.has_zero_points ? visit(write_numbers<T, Table, true>, kPairBytes)
                                : visit(write_numbers<T, Table, false>, kPairBytes);
  if (is_fp8(kind.dtype)) return visit(write_numbers<T, Floats, false>, 0);
  return kind.has_zero_points ? visit(write_numbers<T, Bytes, true>, 0)
                              : visit(write_numbers<T, Bytes, false>, 0);
}
template <class Visit>
Status visit_writers(const CodeKind& kind, const Visit& visit) {
  return kind.values == DType::Float16 ? visit_writer<math::Half>(kind, visit)
                                       : visit_writer<math::Bfloat16>(kind, visit);
}

// Whether write_numbers() can read the codes; launch_unscaled() takes any.
bool are_vectors(const WeightCodes& codes, std::int64_t rows) {
  const int bytes = is_four_bit(codes.dtype) ? 4 : 8;
  return codes.layout == WeightLayout::RowMajor && codes.terms % kVectorTerms == 0 &&
         codes.row_stride % kVectorTerms == 0 && cuda::aligned_to(codes.data, bytes) &&
         codes.segment_size % kVectorTerms == 0 &&
         static_cast<double>(rows) * static_cast<double>(codes.terms) <= cuda::kMaxIndex;
}

Status launch_numbers(const WeightCodes& codes, std::int64_t first, std::int64_t rows, void* to,
                      std::int64_t stride, const Device& device, Bound& bound) {
  if (!are_vectors(codes, rows) || stride != codes.terms)
    return launch_unscaled(codes, first, rows, to, stride, bound);
  NumbersArgs args(codes);
  args.first = first;
  args.in_row = static_cast<std::int32_t>(codes.terms / kVectorTerms);
  args.count = static_cast<std::uint32_t>(rows * args.in_row);
  args.row_vectors = cuda::Divider(static_cast<std::uint32_t>(args.in_row));
  args.segments = cuda::Divider(static_cast<std::uint32_t>(codes.segment_size / kVectorTerms));
  args.table_pitch = kPairPitch;
  args.to = static_cast<uint4*>(to);
  return visit_writers(kind_of(codes), [&](auto kernel, int bytes) {
    const std::int64_t most = std::int64_t{kWriteBlocks} * device.multiprocessors;
    const cuda::Grid grid{
        .blocks = std::min<std::int64_t>(cuda::ceil_div(args.count, kWriteThreads), most),
        .threads = dim3(kWriteThreads),
        .shared_bytes = bytes};
    return cuda::launch(kernel, grid, args, bound);
  });
}

// --- Scales of a panel ---------------------------------------------------------------------------

struct ScalesArgs {
  WeightCodes codes;
  float* to;
  std::int64_t first, rows;  // of the weight
  std::int64_t pitch;        // columns, of whole tiles
  int run;
};

inline constexpr int kScaleThreads = 256;

// A block writes the scales of a run. Where there is no column, or no term, these are 0.
__global__ void __launch_bounds__(kScaleThreads)
    write_scales(const __grid_constant__ ScalesArgs args) {
  const std::int64_t term = std::int64_t{blockIdx.x} * args.run;
  float* const to = args.to + blockIdx.x * args.pitch;
  for (std::int64_t i = threadIdx.x; i < args.pitch; i += kScaleThreads) {
    const bool exists = i < args.rows && term < args.codes.terms;
    to[i] = exists ? scale_at(args.codes, args.first + i, term) : 0.0f;
  }
}

// Those of whole k blocks.
std::int64_t runs_of(std::int64_t terms, int run) {
  constexpr std::int64_t kBlockTerms = cuda::kBoxBytes / 2;
  return cuda::ceil_div(cuda::ceil_div(terms, kBlockTerms) * kBlockTerms, run);
}
std::int64_t whole_tiles(std::int64_t columns) {
  return cuda::ceil_div(columns, kTileColumns) * kTileColumns;
}

// The numbers of a panel, and its scales behind them.
struct Room {
  std::byte* numbers;
  float* scales;

  Room(std::int64_t columns, std::int64_t terms, int run, const Device& device, Scratch& scratch)
      : numbers(linear::panels::book(columns, terms, device, scratch)),
        scales(scratch.take<float>(static_cast<std::size_t>(
            runs_of(terms, run) * whole_tiles(linear::panels::panel_columns(columns, device))))) {}
};

template <class S>
bool fill(const Gemm& panel, Args& args) {
  if (!fill_tiles(panel, kTileRows, args)) return false;
  args.operands.waits = Waits::Never;
  args.span_blocks = static_cast<std::int32_t>(span_terms(panel.k) / S::kBlockTerms);
  return true;
}

template <class S>
Status multiply(const Args& args, const Device& device, Bound& bound) {
  const cuda::Grid grid{.blocks = std::min<std::int64_t>(args.grid.count, device.multiprocessors),
                        .threads = dim3(kTileThreads),
                        .shared_bytes = S::kSharedBytes};
  return cuda::launch(multiply_panel<S>, grid, args, bound);
}

}  // namespace

std::size_t workspace(std::int64_t columns, std::int64_t terms, int run, const Device& device) {
  Scratch scratch;
  (void)Room(columns, terms, run, device, scratch);
  return scratch.bytes();
}

Status preload(const CodeKind& kind) {
  PLANQ_TRY(preload_unscaled(kind.values));
  PLANQ_TRY(cuda::preload(write_scales));
  PLANQ_TRY(
      visit_writers(kind, [](auto kernel, int bytes) { return cuda::preload(kernel, bytes); }));
  return visit_kernel(kind,
                      [&]<class S>() { return cuda::preload(multiply_panel<S>, S::kSharedBytes); });
}

bool takes(const Gemm& gemm) {
  if (gemm.empty() || gemm.k == 0 || is_outside(gemm) || gemm.input.transposed()) return false;
  cuda::TensorMap map;
  return encode_input(gemm, kTileRows, map);
}

Status launch(const Gemm& gemm, const Call& call, Bound& bound) {
  const WeightCodes& codes = *gemm.weight.codes;
  const CodeKind kind = kind_of(codes);
  Scratch scratch(call.workspace);
  const Room room(gemm.n, gemm.k, kind.run, call.device, scratch);
  const std::int64_t rows = linear::panels::panel_columns(gemm.n, call.device);
  const std::int64_t stride = linear::panels::panel_stride(gemm.k);
  for (std::int64_t first = 0; first < gemm.n; first += rows) {
    Gemm panel = columns_of(gemm, first, std::min(rows, gemm.n - first));
    panel.weight = {reinterpret_cast<const std::uint8_t*>(room.numbers), panel.n == 1 ? 0 : stride,
                    1, codes.values};
    PLANQ_TRY(launch_numbers(codes, first, panel.n, room.numbers, stride, call.device, bound));
    const ScalesArgs scales{codes, room.scales, first, panel.n, whole_tiles(panel.n), kind.run};
    const cuda::Grid grid{.blocks = runs_of(gemm.k, kind.run), .threads = dim3(kScaleThreads)};
    PLANQ_TRY(cuda::launch(write_scales, grid, scales, bound));
    PLANQ_TRY(visit_kernel(kind, [&]<class S>() {
      Args args;
      args.scales = room.scales;
      args.scale_pitch = whole_tiles(panel.n);
      return fill<S>(panel, args) ? multiply<S>(args, call.device, bound) : Status::success();
    }));
  }
  return Status::success();
}

}  // namespace planq::linear::sm90::groups::panels
