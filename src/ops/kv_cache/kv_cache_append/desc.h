// kv_cache_append: keys and values of tokens into the pages of a cache, each at its token's slot,
// as they are or quantized. How many slots the cache lacks is counted.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/kv_cache/cache.h"
#include "ops/kv_cache/operand_lines.h"

namespace planq::kv_cache_append {

using kv_cache::is_code;

struct Fields {
  Shape key_shape;             // (tokens, heads, columns)
  std::int64_t value_dim = 0;  // 0: there is no value
  std::int64_t pages = 0;
  std::int64_t page_size = 0;
  CacheLayout layout = CacheLayout::Nhd;
  DType input_dtype = DType::Unset;
  DType cache_dtype = DType::Unset;
  CacheScale scale_scope = CacheScale::Unset;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, key_shape).required().from("key.shape"),
    PLANQ_FIELD(Fields, value_dim).count(),
    PLANQ_FIELD(Fields, pages).required(),
    PLANQ_FIELD(Fields, page_size).required(),
    PLANQ_FIELD(Fields, layout),
    PLANQ_FIELD(Fields, input_dtype).required().from("key.dtype"),
    PLANQ_FIELD(Fields, cache_dtype),
    PLANQ_FIELD(Fields, scale_scope),
};

// Positions in Operands.
enum Operand : int {
  kKey,
  kValue,
  kKeyCache,
  kValueCache,
  kSlot,
  kKeyScale,
  kValueScale,
  kInvalid
};
inline constexpr auto kOperands = operands(
    kFields, {{"key", Role::Input, "input_dtype", "key_shape"},
              {"value", Role::Input, "input_dtype", axes(leading("key_shape"), "value_dim"),
               is_set("value_dim")},
              {"key_cache", Role::InOut, "cache_dtype",
               kv_cache::pages_of(axis_of("key_shape", 1), last_of("key_shape"))},
              {"value_cache", Role::InOut, "cache_dtype",
               kv_cache::pages_of(axis_of("key_shape", 1), "value_dim"), is_set("value_dim")},
              {"slot", Role::Input, DType::Int64, axis_of("key_shape", 0)},
              {"key_scale", kv_cache::scale_role(), DType::Float32,
               kv_cache::scales_of(axis_of("key_shape", 1)), is("cache_dtype", is_code)},
              {"value_scale", kv_cache::scale_role(), DType::Float32,
               kv_cache::scales_of(axis_of("key_shape", 1)),
               is("cache_dtype", is_code) && is_set("value_dim")},
              {"invalid", Role::Output, DType::Int64, 1}});

// Where a call has its cache.
inline kv_cache::Cache cache_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const Operands& own = call.operands;
  return {f,
          f.key_shape,
          {own[kKey], own[kValue], own[kKeyCache], own[kValueCache], own[kSlot], own[kKeyScale],
           own[kValueScale]}};
}

// Kernels that copy, those that round, and those that quantize.
template <DType kInputType, DType kCacheType>
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = kInputType == kCacheType ? MathPrecision::None : MathPrecision::F32,
    .accumulator = kInputType == kCacheType ? DType::Int64 : DType::Float32,
    .rounding = kInputType == kCacheType ? Rounding::None : Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis =
        is_code(kCacheType)
            ? "one quotient and one rounding for each element; maxima are exact in any order; of "
              "equal slots the last counts"
        : kInputType == kCacheType
            ? "copies; of equal slots the last counts"
            : "one rounding for each element; of equal slots the last counts"};

template <DType kInputType, DType kCacheType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", kInputType, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "cache_dtype", kCacheType, f.cache_dtype);
}

}  // namespace planq::kv_cache_append
