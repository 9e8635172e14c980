// dynamic_range_quantize on the host, by GGML's convention.

#include <cstdint>

#include "core/sku.h"
#include "host/bind.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/affine/dynamic_range_quantize/desc.h"
#include "ops/affine/ggml.h"

namespace planq::dynamic_range_quantize {
namespace {

using math::Half;
using math::Stored;
using std::int64_t;
using std::uint8_t;

// Blocks that are worth waking a thread for.
constexpr int64_t kGrain = 1 << 10;

// The elements of a block in float32, and the first of the largest magnitude.
struct Block {
  float values[kGgmlBlock];
  float peak = 0.0f;
  float largest = -1.0f;  // so that the first element is the peak of zeros, and lends its sign
  bool finite = true;

  template <class T>
  explicit Block(const T* input) {
    for (int i = 0; i < kGgmlBlock; ++i) {
      values[i] = math::widen(input[i]);
      const float magnitude = math::bit_cast<float>(math::magnitude_bits(values[i]));
      finite = finite && math::is_finite(values[i]);
      if (magnitude > largest) {
        largest = magnitude;
        peak = values[i];
      }
    }
  }
};

template <DType kTo>
Half encode(const Block& block, uint8_t* codes, NibbleOrder order) {
  constexpr bool kByte = kTo == DType::Int8;
  constexpr int kBytes = kByte ? kGgmlBlock : kGgmlBlock / 2;
  if (!block.finite) {
    for (int i = 0; i < kBytes; ++i) codes[i] = 0;
    return math::to_half(math::canonical_nan<float>());
  }
  const math::GgmlBlock numbers(kByte ? block.largest : block.peak,
                                kByte ? math::kQ8Steps : math::kQ4Steps);
  for (int i = 0; i < kBytes; ++i) {
    if constexpr (kByte) {
      codes[i] = static_cast<uint8_t>(math::q8_code(block.values[i], numbers.inverse));
    } else {
      const auto code = [&](int at) {
        return static_cast<uint8_t>(math::q4_code(block.values[at], numbers.inverse));
      };
      codes[i] = math::pack_nibbles(code(2 * i), code(2 * i + 1), order);
    }
  }
  return math::to_half(numbers.scale);
}

template <DType kFrom, DType kTo>
Status compute(const Call& call, const Stream& stream) {
  using T = Stored<kFrom>;
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const IndexSpace blocks = whole_groups(f, operands);
  const auto* input = static_cast<const T*>(operands[kInput].data);
  auto* codes = static_cast<uint8_t*>(operands[kOutput].data);
  auto* scales = static_cast<Half*>(operands[kScale].data);
  host::parallel_for(stream.threads, blocks.size(), kGrain, [&](int64_t first, int64_t last) {
    for_each_piece(blocks, first, last, [&](Offsets at, int64_t count, const Axis& inner) {
      for (int64_t i = 0; i < count; ++i, at = moved(at, inner, 1))
        scales[at.at[kScale]] =
            encode<kTo>(Block(input + at.at[kInput]), codes + at.at[kOutput], f.nibble_order);
    });
  });
  return Status::success();
}

template <DType kFrom, DType kTo>
constexpr Kernel make_kernel() {
  return {.op = "dynamic_range_quantize",
          .variant = "group",
          .arithmetic = "ggml",
          .body = "blocks",
          .dtypes = kDTypes<kFrom, kTo, DType::Float16>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = ggml_guarantee<kTo>(),
          .rejects = rejects_but_ggml<kFrom, kTo>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kFrom, kTo>>};
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Float16, DType::Int8>(),  make_kernel<DType::Float16, DType::Int4>(),
    make_kernel<DType::BFloat16, DType::Int8>(), make_kernel<DType::BFloat16, DType::Int4>(),
    make_kernel<DType::Float32, DType::Int8>(),  make_kernel<DType::Float32, DType::Int4>(),
};

}  // namespace
}  // namespace planq::dynamic_range_quantize

PLANQ_KERNELS(dynamic_range_quantize, host_ggml, kKernels);
