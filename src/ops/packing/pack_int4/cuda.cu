// pack_int4 on CUDA: 16 codes a vector where a byte's codes are neighbours, two vectors of 16 where
// they are rows apart.

#include <cstdint>

#include "math/nibbles.h"
#include "ops/affine/scale.h"
#include "ops/packing/nibble_pairs.cuh"
#include "ops/packing/pack_int4/desc.h"

namespace planq::pack_int4 {

namespace {

using cuda::PairOperands;
using cuda::PairPlace;

struct Byte {
  static __device__ __forceinline__ void byte(const PairOperands& args, const PairPlace& at) {
    const std::uint8_t first = cuda::load_single(args.input + at.codes);
    const std::uint8_t second = at.two ? cuda::load_single(args.input + at.codes + args.second) : 0;
    cuda::store_once(args.output + at.packed, math::pack_nibbles(first, second, args.order));
  }
};

struct Adjacent : Byte {
  static constexpr int kVectors = 2, kBytes = 8, kCodeStep = 2;
  using Vector = uint4;

  static __device__ __forceinline__ void load(const PairOperands& args, const PairPlace& at,
                                              Vector& v) {
    v = cuda::load_once(args.input + at.codes);
  }
  static __device__ __forceinline__ void store(const PairOperands& args, const PairPlace& at,
                                               const Vector& v) {
    const auto packed = [&](std::uint32_t a, std::uint32_t b) {
      return __byte_perm(math::neighbours_joined(a, args.order),
                         math::neighbours_joined(b, args.order), 0x6420);
    };
    const std::uint64_t word =
        static_cast<std::uint64_t>(packed(v.z, v.w)) << 32 | packed(v.x, v.y);
    cuda::store_word<8>(args.output + at.packed, word);
  }
};

struct Planes : Byte {
  static constexpr int kVectors = 4, kBytes = 16, kCodeStep = 1;
  struct Vector {
    uint4 first, second;
  };

  static __device__ __forceinline__ void load(const PairOperands& args, const PairPlace& at,
                                              Vector& v) {
    const std::uint8_t* codes = args.input + at.codes;
    v.first = cuda::load_once(codes);
    v.second = make_uint4(0, 0, 0, 0);
    if (at.two) v.second = cuda::load_once(codes + args.second);
  }
  static __device__ __forceinline__ void store(const PairOperands& args, const PairPlace& at,
                                               const Vector& v) {
    const bool low_first = args.order == NibbleOrder::LowFirst;
    const uint4 low = low_first ? v.first : v.second, high = low_first ? v.second : v.first;
    cuda::store_vector(
        args.output + at.packed,
        make_uint4(math::nibbles_joined(low.x, high.x), math::nibbles_joined(low.y, high.y),
                   math::nibbles_joined(low.z, high.z), math::nibbles_joined(low.w, high.w)));
  }
};

using Launch = cuda::PairLaunch<Adjacent, Planes>;

Status prepare(const Descriptor&, const Device&, State&) { return Launch::preload(); }

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const OperandView &input = operands[kInput], &output = operands[kOutput];
  const NibblePairs pairs(f.shape, f.axis, input, output);
  return Launch(pairs, input.data, output.data, f.nibble_order, bound).run(input.data, output.data);
}

template <DType kOutput>
constexpr Kernel make_kernel() {
  return {.op = "pack_int4",
          .body = "bytes",
          .dtypes = kDTypes<byte_dtype(kOutput), kOutput>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kOutput>,
          .workspace = no_workspace,
          .prepare = prepare,
          .bind = bind};
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Int4>(),
    make_kernel<DType::UInt4>(),
};

}  // namespace
}  // namespace planq::pack_int4

PLANQ_KERNELS(pack_int4, cuda, kKernels);
