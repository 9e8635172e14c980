// dynamic_range_quantize on CUDA, into MX and NVFP4: two or four threads for each group, eight
// elements a thread.

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/divider.cuh"
#include "cuda/launch.cuh"
#include "ops/affine/dynamic_range_quantize/formats.h"
#include "ops/affine/format_codes.cuh"

namespace planq::dynamic_range_quantize {
namespace {

using cuda::ceil_div;
using math::Stored;
using std::int64_t;
using std::uint32_t;
using std::uint8_t;

constexpr int kFormatThreads = 256;
constexpr int64_t kFormatBlocks = int64_t{1} << 30;
using affine::format_codes;
using affine::FormatElements;
using affine::FormatWord;
using affine::kFormatBytes;
using affine::kFormatEach;
using affine::kFormatLanes;

struct FormatArgs {
  const void* input;
  uint8_t *output, *scale;
  const float* tensor_factor;  // null: the format has none
  bool round_up;
  NibbleOrder order;
};

template <class F>
__device__ __forceinline__ math::FormatScale scale_of_group(const FormatArgs& args, uint32_t peak) {
  return F::scale_of(affine::format_peak<F>(peak), args.round_up,
                     F::kMx ? 0.0f : __ldg(args.tensor_factor));
}

// Whole groups whose vectors and words are aligned. A thread has kSets groups under way.
struct WholeGroupArgs : FormatArgs {
  cuda::IndexSpace32 groups;
  uint32_t count;
};

template <class T, class F, int kSets>
__global__ void __launch_bounds__(kFormatThreads)
    quantize_whole_groups(const __grid_constant__ WholeGroupArgs args) {
  constexpr uint32_t kPerBlock = kFormatThreads / kFormatLanes<F>;
  const int part = threadIdx.x % kFormatLanes<F>;
  const uint32_t first = blockIdx.x * (kSets * kPerBlock) + threadIdx.x / kFormatLanes<F>;
  Offsets at[kSets];
  FormatElements<T> x[kSets];
#pragma unroll
  for (int k = 0; k < kSets; ++k) {
    // A thread beyond the end repeats the last group and stores nothing.
    at[k] = args.groups.offsets(min(first + k * kPerBlock, args.count - 1));
    x[k].load(static_cast<const T*>(args.input) + at[k].at[kInput] + part * kFormatEach);
  }
#pragma unroll
  for (int k = 0; k < kSets; ++k) {
    const math::FormatScale scale = scale_of_group<F>(args, x[k].peak());
    const FormatWord<F> word = format_codes<T, F>(x[k], scale, args.order);
    if (first + k * kPerBlock >= args.count) continue;
    cuda::store_word<kFormatBytes<F>>(args.output + at[k].at[kOutput] + part * kFormatBytes<F>,
                                      word);
    if (part == 0) cuda::store_once(args.scale + at[k].at[kScale], scale.stored);
  }
}

// Groups at any address, the last one of a row maybe shorter.
struct AnyGroupArgs : FormatArgs {
  IndexSpace rows;
  int64_t count, groups, length;  // groups, those of a row, elements of a row
  int64_t scale_step;
};

template <class T, class F>
__global__ void __launch_bounds__(kFormatThreads)
    quantize_any_groups(const __grid_constant__ AnyGroupArgs args) {
  constexpr int kPerBlock = kFormatThreads / kFormatLanes<F>;
  const int part = threadIdx.x % kFormatLanes<F>;
  for (int64_t first = int64_t{blockIdx.x} * kPerBlock; first < args.count;
       first += int64_t{gridDim.x} * kPerBlock) {
    const int64_t index = first + threadIdx.x / kFormatLanes<F>;
    const bool exists = index < args.count;
    const int64_t row = exists ? index / args.groups : 0, group = index - row * args.groups;
    const int64_t column = group * F::kGroup + part * kFormatEach;
    const int count =
        exists ? static_cast<int>(min(max(args.length - column, int64_t{0}), int64_t{kFormatEach}))
               : 0;
    const Offsets at = args.rows.offsets(row);
    FormatElements<T> x;
    x.load_singles(static_cast<const T*>(args.input) + at.at[kInput] + column, count);
    const math::FormatScale scale = scale_of_group<F>(args, x.peak());
    if (!exists) continue;
    if (part == 0)
      cuda::store_once(args.scale + at.at[kScale] + group * args.scale_step, scale.stored);
    FormatWord<F> word = format_codes<T, F>(x, scale, args.order);
    uint8_t* to = args.output + at.at[kOutput] + (F::kFourBit ? column / 2 : column);
    for (int i = 0; i < (F::kFourBit ? (count + 1) / 2 : count); ++i, word >>= 8) {
      // The zero beyond the end may have got a sign; the spare nibble has none.
      const bool spare = F::kFourBit && 2 * i + 1 == count;
      const uint32_t kept = args.order == NibbleOrder::LowFirst ? 0x0Fu : 0xF0u;
      cuda::store_once(to + i, static_cast<uint8_t>(word & (spare ? kept : 0xFFu)));
    }
  }
}

// --- Launch --------------------------------------------------------------------------------------

// Groups that a thread has under way where there are many.
template <class T>
constexpr int kManySets = sizeof(T) == 2 ? 4 : 2;
// Threads of a multiprocessor that are many: more than it holds.
constexpr int64_t kManyThreads = 2048;

template <class T, class F>
bool takes_vectors(const Fields& f, const Operands& operands, const IndexSpace& groups) {
  if (f.shape.last() % F::kGroup != 0 || groups.size() > cuda::kMaxIndex) return false;
  bool aligned = cuda::aligned_to(operands[kInput].data, cuda::kVectorBytes) &&
                 cuda::aligned_to(operands[kOutput].data, kFormatBytes<F>);
  for (int i = 0; i < groups.rank; ++i)
    aligned = aligned && groups.axes[i].stride[kInput] % cuda::kPerVector<T> == 0 &&
              groups.axes[i].stride[kOutput] % kFormatBytes<F> == 0;
  return aligned;
}

template <class T, class F>
Status launch_whole_groups(const FormatArgs& common, const IndexSpace& groups,
                           int32_t multiprocessors, Bound& bound) {
  const WholeGroupArgs args{common, cuda::IndexSpace32(groups),
                            static_cast<uint32_t>(groups.size())};
  const bool many = groups.size() * kFormatLanes<F> > multiprocessors * kManyThreads;
  const int64_t per_block = kFormatThreads / kFormatLanes<F> * (many ? kManySets<T> : 1);
  return cuda::launch(
      many ? quantize_whole_groups<T, F, kManySets<T>> : quantize_whole_groups<T, F, 1>,
      {ceil_div(groups.size(), per_block), dim3(kFormatThreads)}, args, bound);
}

template <class T, class F>
Status launch_any_groups(const FormatArgs& common, const Fields& f, const Operands& operands,
                         Bound& bound) {
  AnyGroupArgs args{common,
                    rows_of_groups(f, operands),
                    0,
                    groups_of(f.shape.last(), F::kGroup),
                    f.shape.last(),
                    operands[kScale].strides[f.shape.rank - 1]};
  args.rows.merge();
  args.count = args.rows.size() * args.groups;
  const int64_t blocks = ceil_div(args.count, kFormatThreads / kFormatLanes<F>);
  return cuda::launch(quantize_any_groups<T, F>,
                      {std::min(blocks, kFormatBlocks), dim3(kFormatThreads)}, args, bound);
}

template <DType kFrom, class F>
Status prepare(const Descriptor&, const Device&, State&) {
  using T = Stored<kFrom>;
  PLANQ_TRY((cuda::preload(quantize_whole_groups<T, F, 1>)));
  PLANQ_TRY((cuda::preload(quantize_whole_groups<T, F, kManySets<T>>)));
  return cuda::preload(quantize_any_groups<T, F>);
}

template <DType kFrom, class F>
Status bind(const Call& call, Bound& bound) {
  using T = Stored<kFrom>;
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  if (f.shape.elements() == 0) return Status::success();
  const FormatArgs args{operands[kInput].data,
                        static_cast<uint8_t*>(operands[kOutput].data),
                        static_cast<uint8_t*>(operands[kScale].data),
                        static_cast<const float*>(operands[kInverseTensorScale].data),
                        f.convention == Convention::MxRoundUp,
                        f.nibble_order};
  const IndexSpace groups = whole_groups(f, operands);
  if (takes_vectors<T, F>(f, operands, groups))
    return launch_whole_groups<T, F>(args, groups, call.device.multiprocessors, bound);
  return launch_any_groups<T, F>(args, f, operands, bound);
}

template <DType kFrom, class F>
constexpr Kernel make_kernel() {
  Kernel kernel = format_kernel<kFrom, F>();
  kernel.backend = Backend::Cuda;
  kernel.arch = {80};
  kernel.prepare = prepare<kFrom, F>;
  kernel.bind = bind<kFrom, F>;
  return kernel;
}

template <DType kFrom>
constexpr std::array<Kernel, 4> kernels_of() {
  return {make_kernel<kFrom, MxFp4>(), make_kernel<kFrom, MxFp8E4M3>(),
          make_kernel<kFrom, MxFp8E5M2>(), make_kernel<kFrom, Nvfp4>()};
}

constexpr auto kKernels = joined(kernels_of<DType::Float16>(), kernels_of<DType::BFloat16>(),
                                 kernels_of<DType::Float32>());

}  // namespace
}  // namespace planq::dynamic_range_quantize

PLANQ_KERNELS(dynamic_range_quantize, cuda_formats, kKernels);
