// Wrong products of float32: subnormals are flushed, a byte is not written, what lies behind the
// last element is read, and an address that is not aligned changes a bit.
#pragma once

#include "../wrong.h"
#include "ops/memory/multiply/desc.h"
#include "ops/memory/multiply/product.h"

namespace planq::multiply {

struct Multiplied {
  ElementLayout layout;
  const float *input, *other;
  float* output;
  std::int64_t count;

  Multiplied(const Call& call, int)
      : layout(layout_of(call)),
        input(static_cast<const float*>(call.operands[kInput].data)),
        other(static_cast<const float*>(call.operands[kOther].data)),
        output(static_cast<float*>(call.operands[kOutput].data)),
        count(layout.elements()) {}

  PLANQ_HD float product(const ElementOffsets& at) const {
    const float product = input[at.at[kInput]] * other[at.at[kOther]];
    return math::is_nan(product) ? math::canonical_nan<float>() : product;
  }
};

struct FlushToZero : Multiplied {
  static constexpr std::string_view kName = "wrong_flush_to_zero";
  using Multiplied::Multiplied;

  PLANQ_HD void operator()(std::int64_t i) const {
    const ElementOffsets at = wrong::element_at(layout, i);
    const float right = product(at);
    const bool flushed = math::magnitude_bits(right) < 0x00800000u;
    output[at.at[kOutput]] = flushed ? right * 0.0f : right;
  }
};

struct UnwrittenByte : Multiplied {
  static constexpr std::string_view kName = "wrong_unwritten_byte";
  using Multiplied::Multiplied;

  PLANQ_HD void operator()(std::int64_t i) const {
    const ElementOffsets at = wrong::element_at(layout, i);
    const auto right = math::bit_cast<std::uint32_t>(product(at));
    auto* const bytes = reinterpret_cast<std::uint8_t*>(output + at.at[kOutput]);
    const int written = i == count - 1 ? 3 : 4;
    for (int byte = 0; byte < written; ++byte)
      bytes[byte] = static_cast<std::uint8_t>(right >> 8 * byte);
  }
};

// Four elements at a time: of the last four of a row some may not be there, but count.
struct PastTail : Multiplied {
  static constexpr std::string_view kName = "wrong_past_tail";
  using Multiplied::Multiplied;

  PLANQ_HD void operator()(std::int64_t i) const {
    const ElementOffsets at = wrong::element_at(layout, i);
    const std::int64_t column = i % layout.length;
    float right = product(at);
    for (std::int64_t c = column; c < column / 4 * 4 + 4; ++c)
      if (c >= layout.length && math::is_nan(input[at.at[kInput] + c - column]))
        right = math::canonical_nan<float>();
    output[at.at[kOutput]] = right;
  }
};

struct OneBitByAlignment : Multiplied {
  static constexpr std::string_view kName = "wrong_bit_by_alignment";
  using Multiplied::Multiplied;

  PLANQ_HD void operator()(std::int64_t i) const {
    const ElementOffsets at = wrong::element_at(layout, i);
    const std::uint32_t flipped = i == 0 && reinterpret_cast<std::uintptr_t>(input) % 16 != 0;
    const auto right = math::bit_cast<std::uint32_t>(product(at));
    output[at.at[kOutput]] = math::bit_cast<float>(right ^ flipped);
  }
};

inline constexpr Kernel kWrong = wrong::entry("multiply", kDTypes<DType::Float32, DType::Float32>,
                                              1, wrong::kPromise<>, rejects<DType::Float32>);

}  // namespace planq::multiply
