// attention: what queries find in the keys and values of their sequences, which lie in the pages of
// a cache or one after another.
#pragma once

#include <string_view>

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/kv_cache/operand_lines.h"
#include "ops/linear/vocabulary.h"

namespace planq::attention {

using kv_cache::is_code;

// Those of MLA's latent keys and values.
inline constexpr std::int64_t kMostKeyColumns = 576, kMostValueColumns = 512;

struct Fields {
  Shape query_shape;  // (tokens, heads, columns)
  std::int64_t key_heads = 0;
  std::int64_t value_dim = 0;
  std::int64_t batch = 0;
  std::int64_t max_query = 0;
  std::int64_t max_key = 0;
  std::int64_t pages = 0;      // 0: sequences have no pages
  std::int64_t page_size = 0;  // 0: likewise
  CacheLayout layout = CacheLayout::Nhd;
  DType input_dtype = DType::Unset;
  DType cache_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  bool causal = false;
  std::int64_t window = 0;  // 0: there is none
  double soft_cap = kUnsetBound;
  CacheScale scale_scope = CacheScale::Unset;
  bool with_lse = false;
  bool with_sink = false;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, query_shape).required().from("query.shape"),
    PLANQ_FIELD(Fields, key_heads).required(),
    PLANQ_FIELD(Fields, value_dim).count(),
    PLANQ_FIELD(Fields, batch).required(),
    PLANQ_FIELD(Fields, max_query).required(),
    PLANQ_FIELD(Fields, max_key).required(),
    PLANQ_FIELD(Fields, pages).count(),
    PLANQ_FIELD(Fields, page_size).count(),
    PLANQ_FIELD(Fields, layout),
    PLANQ_FIELD(Fields, input_dtype).required().from("query.dtype"),
    PLANQ_FIELD(Fields, cache_dtype),
    PLANQ_FIELD(Fields, output_dtype),
    PLANQ_FIELD(Fields, causal),
    PLANQ_FIELD(Fields, window).count(),
    PLANQ_FIELD(Fields, soft_cap),
    PLANQ_FIELD(Fields, scale_scope),
    PLANQ_FIELD(Fields, with_lse),
    PLANQ_FIELD(Fields, with_sink),
};

// A cache without pages is one where each sequence has a page of its own.
constexpr Rule cache_of(const Rule& columns) {
  return when(is_set("page_size"), kv_cache::pages_of("key_heads", columns),
              when(is("layout", CacheLayout::Nhd), axes("batch", "max_key", "key_heads", columns),
                   axes("batch", "key_heads", "max_key", columns)));
}
constexpr Rule scales_of_cache() {
  const Rule own = when(is("layout", CacheLayout::Nhd), axes("batch", "max_key", "key_heads"),
                        axes("batch", "key_heads", "max_key"));
  return when(is("scale_scope", CacheScale::Token) && !is_set("page_size"), own,
              kv_cache::scales_of("key_heads"));
}

// Positions in Operands.
enum Operand : int {
  kQuery,
  kKeyCache,
  kValueCache,
  kOutput,
  kQueryStart,
  kKeyLength,
  kBlockTable,
  kKeyScale,
  kValueScale,
  kSink,
  kLse,
  kScale,
  kInvalid
};
inline constexpr auto kOperands = operands(
    kFields,
    {{"query", Role::Input, "input_dtype", "query_shape"},
     {"key_cache", Role::Input, "cache_dtype", cache_of(last_of("query_shape"))},
     {"value_cache", Role::Input, "cache_dtype", cache_of("value_dim")},
     {"output", Role::Output, "output_dtype", axes(leading("query_shape"), "value_dim")},
     {"query_start", Role::Input, DType::Int32, Rule("batch") + 1},
     {"key_length", Role::Input, DType::Int32, "batch"},
     {"block_table", Role::Input, DType::Int32, axes("batch", groups_of("max_key", "page_size")),
      is_set("page_size")},
     {"key_scale", Role::Input, DType::Float32, scales_of_cache(), is("cache_dtype", is_code)},
     {"value_scale", Role::Input, DType::Float32, scales_of_cache(), is("cache_dtype", is_code)},
     {"sink", Role::Input, DType::Float32, axis_of("query_shape", 1), "with_sink"},
     {"lse", Role::Output, DType::Float32, leading("query_shape"), "with_lse"},
     scalar("scale", Role::Input, DType::Float64),
     tensor("invalid", Role::Output, DType::Int64, 1).optional()});

constexpr MathPrecision math_of(DType input) {
  return input == DType::Float16 ? MathPrecision::TensorCoreF16 : MathPrecision::TensorCoreBF16;
}

// Kernels with the bits of docs/numerics/attention.md.
template <DType kInputType>
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = math_of(kInputType),
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = std::string_view(
        "tensor cores of sm_90 as measured, computed exactly; keys in blocks and spans by their "
        "positions, which are merged in order")};

template <DType kInputType, DType kCacheType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", kInputType, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "cache_dtype", kCacheType, f.cache_dtype);
}

}  // namespace planq::attention
