// dynamic_range_quantize on CUDA, by GGML's convention: a warp for each block of 32 elements.

#include <algorithm>
#include <cstdint>

#include "core/sku.h"
#include "cuda/launch.cuh"
#include "cuda/memory_access.cuh"
#include "math/formats.h"
#include "ops/affine/dynamic_range_quantize/desc.h"
#include "ops/affine/ggml.h"

namespace planq::dynamic_range_quantize {
namespace {

using math::Half;
using math::Stored;
using std::int64_t;
using std::uint8_t;

constexpr int kThreads = 256, kWarps = kThreads / kGgmlBlock;
constexpr int64_t kMostBlocks = int64_t{1} << 30;
constexpr unsigned kAll = 0xFFFFFFFFu;

struct GgmlArgs {
  const void* input;
  uint8_t* output;
  Half* scale;
  IndexSpace blocks;
  int64_t count;
  NibbleOrder order;
};

template <class T, bool kByte>
__global__ void __launch_bounds__(kThreads) quantize_ggml(const __grid_constant__ GgmlArgs args) {
  const int lane = threadIdx.x % kGgmlBlock;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kGgmlBlock;
       index < args.count; index += static_cast<int64_t>(gridDim.x) * kWarps) {
    const Offsets at = args.blocks.offsets(index);
    const float x = math::widen(static_cast<const T*>(args.input)[at.at[kInput] + lane]);
    const std::uint32_t bits = __float_as_uint(x) & 0x7FFFFFFFu;
    const std::uint32_t most = __reduce_max_sync(kAll, bits);
    const bool finite = most < 0x7F800000u;
    float peak = __uint_as_float(most);
    // The first of the largest magnitude lends its sign.
    if constexpr (!kByte) peak = __shfl_sync(kAll, x, __ffs(__ballot_sync(kAll, bits == most)) - 1);
    const math::GgmlBlock numbers(peak, kByte ? math::kQ8Steps : math::kQ4Steps);
    std::int32_t code = 0;
    if (finite)
      code = kByte ? math::q8_code(x, numbers.inverse) : math::q4_code(x, numbers.inverse);
    uint8_t* const codes = args.output + at.at[kOutput];
    if constexpr (kByte) {
      codes[lane] = static_cast<uint8_t>(code);
    } else {
      const std::int32_t next = __shfl_down_sync(kAll, code, 1);
      if (lane % 2 == 0)
        codes[lane / 2] =
            math::pack_nibbles(static_cast<uint8_t>(code), static_cast<uint8_t>(next), args.order);
    }
    if (lane == 0)
      args.scale[at.at[kScale]] =
          math::to_half(finite ? numbers.scale : math::canonical_nan<float>());
  }
}

template <DType kFrom, DType kTo>
constexpr auto kKernel = quantize_ggml<Stored<kFrom>, kTo == DType::Int8>;

template <DType kFrom, DType kTo>
Status prepare(const Descriptor&, const Device&, State&) {
  return cuda::preload(kKernel<kFrom, kTo>);
}

template <DType kFrom, DType kTo>
Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const IndexSpace blocks = whole_groups(f, operands);
  const GgmlArgs args{operands[kInput].data,
                      static_cast<uint8_t*>(operands[kOutput].data),
                      static_cast<Half*>(operands[kScale].data),
                      blocks,
                      blocks.size(),
                      f.nibble_order};
  if (args.count == 0) return Status::success();
  const int64_t grid = std::min(cuda::ceil_div(args.count, kWarps), kMostBlocks);
  return cuda::launch(kKernel<kFrom, kTo>, {grid, kThreads}, args, bound);
}

template <DType kFrom, DType kTo>
constexpr Kernel make_kernel() {
  return {.op = "dynamic_range_quantize",
          .variant = "group",
          .arithmetic = "ggml",
          .body = "blocks",
          .dtypes = kDTypes<kFrom, kTo, DType::Float16>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 0,
          .guarantee = ggml_guarantee<kTo>(),
          .rejects = rejects_but_ggml<kFrom, kTo>,
          .workspace = no_workspace,
          .prepare = prepare<kFrom, kTo>,
          .bind = bind<kFrom, kTo>};
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Float16, DType::Int8>(),  make_kernel<DType::Float16, DType::Int4>(),
    make_kernel<DType::BFloat16, DType::Int8>(), make_kernel<DType::BFloat16, DType::Int4>(),
    make_kernel<DType::Float32, DType::Int8>(),  make_kernel<DType::Float32, DType::Int4>(),
};

}  // namespace
}  // namespace planq::dynamic_range_quantize

PLANQ_KERNELS(dynamic_range_quantize, cuda_ggml, kKernels);
