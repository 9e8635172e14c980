// unpack_int4 on CUDA: 8 bytes become a vector where a byte's codes are neighbours, 16 bytes become
// two vectors where they are rows apart.

#include <cstdint>

#include "math/nibbles.h"
#include "ops/packing/nibble_pairs.cuh"
#include "ops/packing/unpack_int4/desc.h"

namespace planq::unpack_int4 {

namespace {

using cuda::PairOperands;
using cuda::PairPlace;

template <bool kSigned, class Word>
__device__ __forceinline__ Word finished(Word codes) {
  return kSigned ? math::nibbles_extended(codes) : codes;
}

template <bool kSigned>
struct Byte {
  static __device__ __forceinline__ void byte(const PairOperands& args, const PairPlace& at) {
    const std::uint8_t both = cuda::load_single(args.input + at.packed);
    const std::uint8_t low = finished<kSigned>(math::low_nibbles(both));
    const std::uint8_t high = finished<kSigned>(math::high_nibbles(both));
    const bool low_first = args.order == NibbleOrder::LowFirst;
    cuda::store_once(args.output + at.codes, low_first ? low : high);
    if (at.two) cuda::store_once(args.output + at.codes + args.second, low_first ? high : low);
  }
};

template <bool kSigned>
struct Adjacent : Byte<kSigned> {
  static constexpr int kVectors = 8, kBytes = 8, kCodeStep = 2;
  using Vector = std::uint64_t;

  static __device__ __forceinline__ void load(const PairOperands& args, const PairPlace& at,
                                              Vector& v) {
    v = cuda::load_single(reinterpret_cast<const std::uint64_t*>(args.input + at.packed));
  }
  static __device__ __forceinline__ void store(const PairOperands& args, const PairPlace& at,
                                               const Vector& v) {
    const auto low = static_cast<std::uint32_t>(v), high = static_cast<std::uint32_t>(v >> 32);
    const auto codes = [&](std::uint32_t word, std::uint32_t bytes) {
      return finished<kSigned>(math::neighbours_split(__byte_perm(word, 0, bytes), args.order));
    };
    cuda::store_vector(args.output + at.codes,
                       make_uint4(codes(low, 0x4140), codes(low, 0x4342), codes(high, 0x4140),
                                  codes(high, 0x4342)));
  }
};

template <bool kSigned>
struct Planes : Byte<kSigned> {
  static constexpr int kVectors = 4, kBytes = 16, kCodeStep = 1;
  using Vector = uint4;

  static __device__ __forceinline__ void load(const PairOperands& args, const PairPlace& at,
                                              Vector& v) {
    v = cuda::load_once(args.input + at.packed);
  }
  static __device__ __forceinline__ void store(const PairOperands& args, const PairPlace& at,
                                               const Vector& v) {
    const bool low_first = args.order == NibbleOrder::LowFirst;
    const uint4 low = nibbles<false>(v);
    const uint4 high = nibbles<true>(v);
    std::uint8_t* codes = args.output + at.codes;
    cuda::store_vector(codes, low_first ? low : high);
    if (at.two) cuda::store_vector(codes + args.second, low_first ? high : low);
  }

 private:
  template <bool kHigh>
  static __device__ __forceinline__ uint4 nibbles(const uint4& v) {
    const auto half = [](std::uint32_t word) {
      return finished<kSigned>(kHigh ? math::high_nibbles(word) : math::low_nibbles(word));
    };
    return make_uint4(half(v.x), half(v.y), half(v.z), half(v.w));
  }
};

template <bool kSigned>
using Launch = cuda::PairLaunch<Adjacent<kSigned>, Planes<kSigned>>;

template <bool kSigned>
Status prepare(const Descriptor&, const Device&, State&) {
  return Launch<kSigned>::preload();
}

template <bool kSigned>
Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const OperandView &input = operands[kInput], &output = operands[kOutput];
  const NibblePairs pairs(f.shape, f.axis, output, input);
  return Launch<kSigned>(pairs, input.data, output.data, f.nibble_order, bound)
      .run(output.data, input.data);
}

template <DType kCodes>
constexpr Kernel make_kernel() {
  return {.op = "unpack_int4",
          .body = "bytes",
          .dtypes = kDTypes<kCodes, byte_dtype(kCodes)>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kCodes>,
          .workspace = no_workspace,
          .prepare = prepare<kCodes == DType::Int4>,
          .bind = bind<kCodes == DType::Int4>};
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Int4>(),
    make_kernel<DType::UInt4>(),
};

}  // namespace
}  // namespace planq::unpack_int4

PLANQ_KERNELS(unpack_int4, cuda, kKernels);
