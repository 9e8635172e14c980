// Tokens and the cache for both backends: where keys and values lie, where they go, and the codes
// that they become.
#pragma once

#include <cstdint>

#include "math/formats.h"
#include "math/ieee.h"
#include "ops/affine/float8_code.h"
#include "ops/affine/scale.h"
#include "ops/kv_cache/operand_lines.h"

namespace planq::math {

// The largest code.
template <DType kCodes>
inline constexpr float kLargestCode = kCodes == DType::Int8           ? 127.0f
                                      : kCodes == DType::Float8E4M3FN ? 448.0f
                                                                      : 57344.0f;

// The code of quantize, symmetric, with its defaults, and no branch. Clamping to the largest code
// commutes with rounding. A NaN is 0, or the NaN of fp8.
template <DType kCodes>
PLANQ_HD std::uint8_t cache_code(float x, float scale) {
  const float quotient = x / scale;
  const bool lost = !(quotient == quotient);
  const float near = clamp(lost ? 0.0f : quotient, -kLargestCode<kCodes>, kLargestCode<kCodes>);
  if constexpr (kCodes == DType::Int8) {
    return static_cast<std::uint8_t>(host::IntegerCode::of(near));
  } else if constexpr (kCodes == DType::Float8E4M3FN) {
    return lost ? 0x7F : static_cast<std::uint8_t>(host::E4M3Code::of(near));
  } else {
    return lost ? 0x7F : static_cast<std::uint8_t>(host::E5M2Code::of(near));
  }
}

// The scale of dynamic_range_quantize, symmetric, with its defaults, for a head whose largest
// magnitude has these bits. Magnitudes have the order of their bits, and those of infinity and NaN
// are the largest.
template <DType kCodes>
PLANQ_HD float measured_scale(std::uint32_t peak_bits) {
  if (peak_bits >= Ieee<float>::kInfinity) return canonical_nan<float>();
  const float peak = bit_cast<float>(peak_bits);
  return peak == 0.0f ? 1.0f : symmetric_step(peak, kLargestCode<kCodes>);
}

}  // namespace planq::math

namespace planq::kv_cache {

// Keys, or values: strides are in elements.
struct Side {
  const void* input = nullptr;
  void* cache = nullptr;
  const float* scale = nullptr;
  std::int64_t token = 0, input_head = 0;            // of the input
  std::int64_t page = 0, place = 0, cache_head = 0;  // of the cache
  float* measured = nullptr;                         // where scales go that are measured
  std::int64_t scale_page = 0, scale_place = 0, scale_head = 0;
  std::int64_t columns = 0;
};

// What a call has of a cache. Scales without data: there are none.
struct CacheOperands {
  const OperandView &key, &value, &key_cache, &value_cache, &slot, &key_scale, &value_scale;
};

struct Cache {
  Side key, value;  // without columns: there is no value
  const std::int64_t* slots;
  std::int64_t tokens, heads, page_size, capacity;
  bool has_head_scales, measures;

  template <class Fields>
  Cache(const Fields& f, const Shape& key_shape, const CacheOperands& own)
      : slots(static_cast<const std::int64_t*>(own.slot.data)) {
    tokens = key_shape[0];
    heads = key_shape[1];
    page_size = f.page_size;
    capacity = f.pages * f.page_size;
    has_head_scales = f.scale_scope == CacheScale::Head;
    const bool by_place = f.layout == CacheLayout::Nhd;
    key = side(own.key, own.key_cache, own.key_scale, key_shape.last(), by_place);
    measures = f.scale_scope == CacheScale::Token;
    if (measures) measure(key, own.key_scale, by_place);
    if (f.value_dim > 0)
      value = side(own.value, own.value_cache, own.value_scale, f.value_dim, by_place);
    if (measures && f.value_dim > 0) measure(value, own.value_scale, by_place);
  }

  PLANQ_HD bool has(std::int64_t slot) const { return slot >= 0 && slot < capacity; }
  PLANQ_HD bool is_beyond(std::int64_t slot) const { return slot >= capacity; }
  PLANQ_HD float scale(const Side& side, std::int64_t head) const {
    return side.scale ? side.scale[has_head_scales ? head : 0] : 1.0f;
  }

 private:
  static Side side(const OperandView& from, const OperandView& to, const OperandView& scale,
                   std::int64_t columns, bool by_place) {
    Side side;
    side.input = from.data;
    side.cache = to.data;
    side.scale = static_cast<const float*>(scale.data);
    side.token = from.strides[0];
    side.input_head = from.strides[1];
    side.page = to.strides[0];
    side.place = to.strides[by_place ? 1 : 2];
    side.cache_head = to.strides[by_place ? 2 : 1];
    side.columns = columns;
    return side;
  }
  static void measure(Side& side, const OperandView& scale, bool by_place) {
    side.scale = nullptr;
    side.measured = static_cast<float*>(scale.data);
    side.scale_page = scale.strides[0];
    side.scale_place = scale.strides[by_place ? 1 : 2];
    side.scale_head = scale.strides[by_place ? 2 : 1];
  }
};

}  // namespace planq::kv_cache
