// Gemms with weights that are codes, on any GPU: the SIMT kernels, which dequantize one code at a
// time; the kernel that dequantizes rows to memory; and gemms of such rows (panels) on the tensor
// cores of sm_80.
#include "ops/linear/simt/coded_rows.cuh"
#include "ops/linear/simt/gemm.cuh"
#include "ops/linear/simt/weight_only_few_rows.cuh"
#include "ops/linear/weight_only/panels.cuh"

namespace planq::linear {
namespace {

// --- Gemms, an output at a time ------------------------------------------------------------------

struct WeightOnlyArgs : FloatArgs, CodesArgs {};

template <class T>
struct WeightOnlyOperands {
  using Args = WeightOnlyArgs;
  using Core = math::TensorCore16;
  static __device__ NumberRow<T> input(const Args&, const Gemm& gemm, std::int64_t row) {
    return {gemm.input, row};
  }
  static __device__ RowOfCodes<true> weight(const Args& args, const Gemm&, std::int64_t row) {
    return {args, row};
  }
};

// --- Accumulation::GroupsSm90, an output a thread ------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kFloatThreads)
    compute_run_sums(const __grid_constant__ WeightOnlyArgs args) {
  const std::int64_t step = std::int64_t{gridDim.x} * kFloatThreads;
#pragma unroll 1
  for (std::int64_t i = std::int64_t{blockIdx.x} * kFloatThreads + threadIdx.x; i < args.outputs;
       i += step) {
    const OutputPlace place(args.gemm, i);
    finish_output(place, run_sum<T>(args, args.gemm.k, NumberRow<T>(place.gemm.input, place.row),
                                    place.column));
  }
}

// --- Numbers in memory ---------------------------------------------------------------------------

constexpr int kVector = 8;  // numbers that a thread writes at once

struct NumbersArgs : CodesArgs {
  std::int64_t first;    // the first row that is dequantized
  void* to;              // rows of whole vectors, aligned to vectors
  std::int64_t stride;   // from a row of `to` to the next, in numbers
  bool codes_by_vector;  // the codes of a vector are aligned words of one segment
  bool by_row;           // rows are whole segments, of `segments` vectors each
  cuda::Divider segments;
  std::int64_t row_segments;
};

// segment_of() of a vector, by fast division.
__device__ __forceinline__ std::int64_t vector_segment(const NumbersArgs& args, std::int64_t row,
                                                       std::int64_t term) {
  const std::int64_t before = args.codes.has_blocks ? row : 0;
  if (args.by_row)
    return before * args.row_segments +
           args.segments.quotient(static_cast<std::uint32_t>(term / kVector));
  return (before * args.codes.terms + term) / args.codes.segment_size;
}

// The scale of a vector, 1 where numbers are unscaled, and its zero point.
struct VectorStatistic {
  float scale = 1;
  std::int32_t zero_point = 0;
};
template <bool kScaled>
__device__ __forceinline__ VectorStatistic statistic_of(const NumbersArgs& args, std::int64_t row,
                                                        std::int64_t term) {
  const WeightCodes& codes = args.codes;
  VectorStatistic own;
  if (!(kScaled && codes.scales.exist()) && !codes.zero_point) return own;
  const std::int64_t segment = vector_segment(args, row, term);
  if (kScaled && codes.scales.exist())
    own.scale = codes.scales.at(scale_index(codes, row, segment));
  if (codes.zero_point) own.zero_point = codes.stored_zero_point(row, segment);
  if constexpr (!kScaled) own.zero_point = counted_zero_point(codes.dtype, own.zero_point);
  return own;
}

// Dequantizes a vector of codes of kBits, all in one segment. `values`: the codebook, by code.
template <bool kScaled, int kBits>
__device__ __forceinline__ void load_vector(const NumbersArgs& args, const float* values,
                                            std::int64_t row, std::int64_t term,
                                            float (&numbers)[kVector]) {
  const WeightCodes& codes = args.codes;
  using Word = std::conditional_t<kBits == 4, std::uint32_t, uint2>;
  const auto word =
      *reinterpret_cast<const Word*>(codes.data + (row * codes.row_stride + term) * kBits / 8);
  std::uint32_t halves[2] = {};
  memcpy(halves, &word, sizeof word);
  const int swapped = kBits == 4 && codes.nibble_order == NibbleOrder::HighFirst ? 1 : 0;
  const VectorStatistic own = statistic_of<kScaled>(args, row, term);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const std::uint32_t bits =
        kBits == 4 ? halves[0] >> (i ^ swapped) * 4 & 15 : halves[i / 4] >> i % 4 * 8 & 255;
    const float number = number_of(codes, values, static_cast<std::uint8_t>(bits), own.zero_point);
    numbers[i] = kScaled ? own.scale * number : number;
  }
}

// Dequantizes a row, whose vectors the threads take in turn.
template <class T, bool kScaled, int kBits>
__device__ __forceinline__ void write_vectors(const NumbersArgs& args, const float* values,
                                              std::int64_t row, T* to) {
#pragma unroll 4
  for (auto term = static_cast<std::int64_t>(threadIdx.x) * kVector; term < args.codes.terms;
       term += kFloatThreads * kVector) {
    float numbers[kVector];
    load_vector<kScaled, kBits>(args, values, row, term, numbers);
    T rounded[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) rounded[i] = math::narrow<T>(numbers[i]);
    uint4 vector;
    memcpy(&vector, rounded, sizeof vector);
    cuda::store_kept(to + term, vector);
  }
}

// The same of any codes, one at a time.
template <class T, bool kScaled>
__device__ __forceinline__ void write_each(const NumbersArgs& args, std::int64_t row, T* to) {
#pragma unroll 1
  for (std::int64_t term = threadIdx.x; term < args.codes.terms; term += kFloatThreads)
    to[term] = math::narrow<T>(kScaled ? number_at(args.codes, args.codebook(), row, term)
                                       : unscaled_at(args.codes, args.codebook(), row, term));
}

// A block dequantizes one row.
template <class T, bool kScaled>
__global__ void __launch_bounds__(kFloatThreads)
    dequantize_rows(const __grid_constant__ NumbersArgs args) {
  // A copy in shared memory: lanes look up different codes, and constant memory would serve these
  // one after another.
  __shared__ float values[16];
  if (args.codes.has_codebook()) {
    if (threadIdx.x < 16) values[threadIdx.x] = args.codebook()[threadIdx.x];
    __syncthreads();
  }
  const std::int64_t row = args.first + blockIdx.x;
  T* to = static_cast<T*>(args.to) + blockIdx.x * args.stride;
  if (!args.codes_by_vector)
    write_each<T, kScaled>(args, row, to);
  else if (is_four_bit(args.codes.dtype))
    write_vectors<T, kScaled, 4>(args, values, row, to);
  else
    write_vectors<T, kScaled, 8>(args, values, row, to);
}

// Whether the codes of each vector are an aligned word, or two, of one segment.
bool are_words(const WeightCodes& codes) {
  return codes.layout == WeightLayout::RowMajor &&
         cuda::aligned_to(codes.data, is_four_bit(codes.dtype) ? 4 : 8) &&
         codes.row_stride % kVector == 0 && codes.segment_size % kVector == 0 &&
         codes.terms % kVector == 0;
}

template <bool kScaled>
Status preload_rows(DType values) {
  return values == DType::Float16 ? cuda::preload(dequantize_rows<math::Half, kScaled>)
                                  : cuda::preload(dequantize_rows<math::Bfloat16, kScaled>);
}
template <bool kScaled>
Status launch_rows(const WeightCodes& codes, std::int64_t first, std::int64_t rows, void* to,
                   std::int64_t stride, Bound& bound) {
  NumbersArgs args{CodesArgs(codes), first, to, stride, are_words(codes), false, {}, 0};
  if (args.codes_by_vector && codes.segment_size > 0 && codes.terms % codes.segment_size == 0 &&
      codes.terms / kVector <= cuda::kMaxIndex) {
    args.by_row = true;
    args.segments = cuda::Divider(static_cast<std::uint32_t>(codes.segment_size / kVector));
    args.row_segments = codes.terms / codes.segment_size;
  }
  const cuda::Grid grid{.blocks = rows, .threads = dim3(kFloatThreads)};
  return codes.values == DType::Float16
             ? cuda::launch(dequantize_rows<math::Half, kScaled>, grid, args, bound)
             : cuda::launch(dequantize_rows<math::Bfloat16, kScaled>, grid, args, bound);
}

template <class T>
Status launch_type(const WeightOnlyArgs& args, Accumulation accumulation, Bound& bound) {
  if constexpr (!std::is_same_v<T, float>) {
    if (accumulation == Accumulation::TensorSm90)
      return launch_tensor_sums<WeightOnlyOperands<T>>(args, bound);
    if (accumulation == Accumulation::GroupsSm90)
      return launch_outputs(compute_run_sums<T>, args, 1, bound);
  }
  return launch_lane_sums<WeightOnlyOperands<T>>(args, bound);
}

}  // namespace

Status preload_weight_only(DType values) {
  PLANQ_TRY(lanes::preload(values));
  PLANQ_TRY(cuda::preload(compute_tensor_sums<WeightOnlyOperands<math::Half>>));
  PLANQ_TRY(cuda::preload(compute_tensor_sums<WeightOnlyOperands<math::Bfloat16>>));
  PLANQ_TRY(cuda::preload(compute_run_sums<math::Half>));
  PLANQ_TRY(cuda::preload(compute_run_sums<math::Bfloat16>));
  PLANQ_TRY(cuda::preload(compute_lane_sums<WeightOnlyOperands<math::Half>>));
  PLANQ_TRY(cuda::preload(compute_lane_sums<WeightOnlyOperands<math::Bfloat16>>));
  return cuda::preload(compute_lane_sums<WeightOnlyOperands<float>>);
}

Status launch_weight_only(const Gemm& gemm, Accumulation accumulation, Bound& bound) {
  if (gemm.empty()) return Status::success();
  if (accumulation == Accumulation::Lanes && lanes::takes(gemm)) return lanes::launch(gemm, bound);
  const WeightOnlyArgs args{float_args(gemm), CodesArgs(*gemm.weight.codes)};
  switch (gemm.input.dtype) {
    case DType::Float16:
      return launch_type<math::Half>(args, accumulation, bound);
    case DType::BFloat16:
      return launch_type<math::Bfloat16>(args, accumulation, bound);
    default:
      return launch_type<float>(args, accumulation, bound);
  }
}

Status preload_dequantize(DType values) { return preload_rows<true>(values); }
Status launch_dequantize(const WeightCodes& codes, std::int64_t first, std::int64_t rows, void* to,
                         std::int64_t stride, Bound& bound) {
  return launch_rows<true>(codes, first, rows, to, stride, bound);
}
Status preload_unscaled(DType values) { return preload_rows<false>(values); }
Status launch_unscaled(const WeightCodes& codes, std::int64_t first, std::int64_t rows, void* to,
                       std::int64_t stride, Bound& bound) {
  return launch_rows<false>(without_scales(codes), first, rows, to, stride, bound);
}

std::size_t panel_workspace(std::int64_t columns, std::int64_t terms, const Device& device) {
  Scratch scratch;
  panels::book(columns, terms, device, scratch);
  return scratch.bytes();
}

Status preload_weight_only_sm80(DType values) {
  PLANQ_TRY(preload_dequantize(values));
  return preload_float_sm80(values);
}

Status launch_weight_only_sm80(const Gemm& gemm, const Call& call, Bound& bound) {
  if (gemm.empty()) return Status::success();
  return panels::launch(gemm, call, bound, [&](const Gemm& panel) {
    return launch_float_sm80(panel, call.device, bound);
  });
}

}  // namespace planq::linear
