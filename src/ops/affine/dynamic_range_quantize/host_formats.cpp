// dynamic_range_quantize on the host, into MX and NVFP4. A piece of a row goes through three loops
// while it is in a first-level cache: widen, measure its groups, make their codes.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "host/bind.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/affine/dynamic_range_quantize/formats.h"
#include "ops/affine/float8_code.h"

namespace planq::host {
namespace {

// The loops of one instruction set.
struct GroupLoops {
  void (*widen)(const void* from, std::int64_t count, float* to);
  void (*peaks)(const float* values, std::int64_t groups, std::uint32_t* peaks);
  void (*codes)(const float* values, const float* factors, std::int64_t groups, float largest,
                std::uint8_t* codes);
};

}  // namespace
}  // namespace planq::host

#define PLANQ_LOOPS "ops/affine/dynamic_range_quantize/format_loops.h"
#include "host/instruction_sets.h"

namespace planq::dynamic_range_quantize {
namespace {

using math::Stored;
using std::int64_t;
using std::uint8_t;

// Elements of a piece: whole groups of every format. And elements that are worth waking a thread
// for.
constexpr int64_t kPiece = 512, kPieceGrain = 1 << 15;

template <class F>
using CodeOf = std::conditional_t<
    F::kFourBit, host::E2M1Code,
    std::conditional_t<F::kCode == DType::Float8E4M3FN, host::E4M3Code, host::E5M2Code>>;

template <class T, class F>
const host::GroupLoops& loops_of() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kGroupLoops<T, CodeOf<F>, F::kGroup>;
  if (level == host::Level::Avx2) return host::avx2::kGroupLoops<T, CodeOf<F>, F::kGroup>;
#endif
  return host::baseline::kGroupLoops<T, CodeOf<F>, F::kGroup>;
}

// What all pieces have in common.
struct Conversion {
  const host::GroupLoops& loops;
  bool round_up;
  float tensor_factor;
  NibbleOrder order;
};

// Where a piece is.
struct PiecePlace {
  const void* input;
  uint8_t *output, *scale;
  int64_t scale_step;
};

template <class F>
void store_codes(const uint8_t* codes, int64_t count, NibbleOrder order, uint8_t* to) {
  if constexpr (F::kFourBit) {
    for (int64_t i = 0; i < (count + 1) / 2; ++i)
      to[i] = math::pack_nibbles(codes[2 * i], codes[2 * i + 1], order);
  } else {
    std::memcpy(to, codes, static_cast<std::size_t>(count));
  }
}

// Zeros complete the last group: they change no maximum. Their codes may have a sign, so a spare
// nibble is cleared.
template <class F>
void convert(const Conversion& conversion, const PiecePlace& place, int64_t count) {
  constexpr int64_t kMost = kPiece / F::kGroup;
  alignas(64) float values[kPiece];
  alignas(64) uint8_t codes[kPiece];
  std::uint32_t peaks[kMost];
  float factors[kMost];
  const int64_t groups = groups_of(count, F::kGroup);
  conversion.loops.widen(place.input, count, values);
  std::fill(values + count, values + groups * F::kGroup, 0.0f);
  conversion.loops.peaks(values, groups, peaks);
  std::array<bool, kMost> poisoned;
  for (int64_t i = 0; i < groups; ++i) {
    const math::FormatScale scale =
        F::scale_of(peaks[i], conversion.round_up, conversion.tensor_factor);
    place.scale[i * place.scale_step] = scale.stored;
    factors[i] = scale.factor;
    poisoned[i] = scale.poisoned;
  }
  conversion.loops.codes(values, factors, groups, static_cast<float>(format_of(F::kCode).largest),
                         codes);
  for (int64_t i = 0; i < groups; ++i)
    if (poisoned[i]) std::fill_n(codes + i * F::kGroup, F::kGroup, math::kPoisonedCode<F::kCode>);
  if (F::kFourBit && count % 2 == 1) codes[count] = 0;
  store_codes<F>(codes, count, conversion.order, place.output);
}

template <DType kFrom, class F>
Status compute(const Call& call, const Stream& stream) {
  using T = Stored<kFrom>;
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  IndexSpace rows = rows_of_groups(f, operands);
  rows.merge();
  const int64_t length = f.shape.last();
  if (rows.size() == 0 || length == 0) return Status::success();
  const auto* input = static_cast<const T*>(operands[kInput].data);
  auto* codes = static_cast<uint8_t*>(operands[kOutput].data);
  auto* scales = static_cast<uint8_t*>(operands[kScale].data);
  const int64_t scale_step = operands[kScale].strides[f.shape.rank - 1];
  const float tensor_factor =
      F::kMx ? 0.0f : *static_cast<const float*>(operands[kInverseTensorScale].data);
  const Conversion conversion{loops_of<T, F>(), f.convention == Convention::MxRoundUp,
                              tensor_factor, f.nibble_order};
  const int64_t pieces = groups_of(length, kPiece), grain = kPieceGrain / std::min(length, kPiece);
  const auto body = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i / pieces, start = i % pieces * kPiece;
      const Offsets at = rows.offsets(row);
      const PiecePlace place{input + at.at[kInput] + start,
                             codes + at.at[kOutput] + (F::kFourBit ? start / 2 : start),
                             scales + at.at[kScale] + start / F::kGroup * scale_step, scale_step};
      convert<F>(conversion, place, std::min(length - start, kPiece));
    }
  };
  host::parallel_for(stream.threads, rows.size() * pieces, grain, body);
  return Status::success();
}

template <DType kFrom, class F>
constexpr Kernel make_kernel() {
  Kernel kernel = format_kernel<kFrom, F>();
  kernel.bind = host::bind<compute<kFrom, F>>;
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

PLANQ_KERNELS(dynamic_range_quantize, host_formats, kKernels);
