// unpack_int4 on CUDA: 8 bytes become a vector where a byte's codes are neighbours, 16 bytes become
// two vectors where they are rows apart. The rows stand in one slice, since no input type tells
// them apart.

#include <cstdint>

#include "ops/unpack_int4/desc.h"

#if PLANQ_SLICE == 1
#include "cuda/nibble_pairs.cuh"
#include "math/nibbles.h"
#endif

namespace planq::unpack_int4 {

#define PLANQ_JOIN_(a, b) a##b
#define PLANQ_JOIN(a, b) PLANQ_JOIN_(a, b)

#if PLANQ_SLICE == 1
namespace {

template <bool kSigned, class Word>
__device__ __forceinline__ Word finished(Word codes) {
  return kSigned ? math::nibbles_extended(codes) : codes;
}

template <bool kSigned>
struct Byte {
  template <class Args>
  static __device__ __forceinline__ void byte(const Args& args, std::int64_t codes,
                                              std::int64_t packed, bool two) {
    const std::uint8_t both = cuda::load_single(args.input + packed);
    const std::uint8_t low = finished<kSigned>(math::low_nibbles(both));
    const std::uint8_t high = finished<kSigned>(math::high_nibbles(both));
    const bool low_first = args.order == NibbleOrder::LowFirst;
    cuda::store_once(args.output + codes, low_first ? low : high);
    if (two) cuda::store_once(args.output + codes + args.second, low_first ? high : low);
  }
};

template <bool kSigned>
struct Adjacent : Byte<kSigned> {
  static constexpr int kVectors = 8, kBytes = 8;
  static constexpr bool kTakesSingles = false;
  using Vector = std::uint64_t;

  template <class Args>
  static __device__ __forceinline__ void load(const Args& args, const Offsets& at, Vector& v) {
    v = cuda::load_single(
        reinterpret_cast<const std::uint64_t*>(args.input + at.at[NibblePairs::kPacked]));
  }
  template <class Args>
  static __device__ __forceinline__ void store(const Args& args, const Offsets& at,
                                               const Vector& v) {
    const auto low = static_cast<std::uint32_t>(v), high = static_cast<std::uint32_t>(v >> 32);
    const auto codes = [&](std::uint32_t word, std::uint32_t bytes) {
      return finished<kSigned>(math::neighbours_split(__byte_perm(word, 0, bytes), args.order));
    };
    cuda::store_vector(args.output + at.at[NibblePairs::kCodes],
                       make_uint4(codes(low, 0x4140), codes(low, 0x4342), codes(high, 0x4140),
                                  codes(high, 0x4342)));
  }
};

template <bool kSigned>
struct Planes : Byte<kSigned> {
  static constexpr int kVectors = 4, kBytes = 16;
  static constexpr bool kTakesSingles = true;
  using Vector = uint4;

  template <class Args>
  static __device__ __forceinline__ void load(const Args& args, const Offsets& at, Vector& v) {
    v = cuda::load_once(args.input + at.at[NibblePairs::kPacked]);
  }
  template <class Args>
  static __device__ __forceinline__ void store(const Args& args, const Offsets& at,
                                               const Vector& v) {
    const bool low_first = args.order == NibbleOrder::LowFirst;
    const uint4 low = nibbles(v, math::low_nibbles<std::uint32_t>);
    const uint4 high = nibbles(v, math::high_nibbles<std::uint32_t>);
    std::uint8_t* codes = args.output + at.at[NibblePairs::kCodes];
    cuda::store_vector(codes, low_first ? low : high);
    if (args.whole(at, kBytes) > 0) cuda::store_vector(codes + args.second, low_first ? high : low);
  }

 private:
  template <class Half>
  static __device__ __forceinline__ uint4 nibbles(const uint4& v, const Half& half) {
    return make_uint4(finished<kSigned>(half(v.x)), finished<kSigned>(half(v.y)),
                      finished<kSigned>(half(v.z)), finished<kSigned>(half(v.w)));
  }
};

template <bool kSigned>
using Launch = cuda::PairLaunch<Adjacent<kSigned>, Planes<kSigned>>;

template <bool kSigned>
Status prepare(const Descriptor& descriptor, const Device&, State& state) {
  state.emplace<Fields>() = descriptor.as<Fields>();
  return Launch<kSigned>::preload();
}

template <bool kSigned>
Status launch(const State& state, const Operands& operands, Workspace, const Stream& stream) {
  const Fields& f = state.as<Fields>();
  const OperandView &input = operands[kInput], &output = operands[kOutput];
  const NibblePairs pairs(f.shape, f.axis, output, input);
  return Launch<kSigned>(pairs, input.data, output.data, f.nibble_order, stream.handle)
      .run(output.data, input.data);
}

template <DType kCodes>
constexpr Kernel row(std::string_view sku) {
  return {.sku = sku,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kCodes>,
          .workspace = no_workspace,
          .prepare = prepare<kCodes == DType::Int4>,
          .launch = launch<kCodes == DType::Int4>};
}

constexpr Kernel kRows[] = {
    row<DType::Int4>("unpack_int4/cuda/bytes/s4_s8"),
    row<DType::UInt4>("unpack_int4/cuda/bytes/u4_u8"),
};

}  // namespace
#else
constexpr std::span<const Kernel> kRows;
#endif

extern const std::span<const Kernel> PLANQ_JOIN(kCudaRows, PLANQ_SLICE);
const std::span<const Kernel> PLANQ_JOIN(kCudaRows, PLANQ_SLICE){kRows};

}  // namespace planq::unpack_int4
