// rotary_kv_cache_append: rotary_embedding and kv_cache_append, one after the other, as one plan.
// The keys that are turned go into the cache, with the values beside them. Queries and keys are
// turned in place, or queries go to an output and keys to the cache alone.
#pragma once

#include <array>

#include "core/operands.h"
#include "core/parts.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "core/sku.h"
#include "ops/kv_cache/cache.h"
#include "ops/kv_cache/operand_lines.h"
#include "ops/position/heads.h"
#include "ops/position/vocabulary.h"

namespace planq::rotary_kv_cache_append {

struct Fields {
  Shape query_shape;  // (tokens, heads, columns)
  std::int64_t key_heads = 0;
  std::int64_t value_dim = 0;  // 0: there is no value
  std::int64_t rotary_dim = 0;
  RotaryPairs pairs = RotaryPairs::Neox;
  DType dtype = DType::Unset;
  DType position_dtype = DType::Int64;
  std::int64_t max_position = 0;
  DType norm_weight_dtype = DType::Unset;
  std::int64_t pages = 0;
  std::int64_t page_size = 0;
  CacheLayout layout = CacheLayout::Nhd;
  DType cache_dtype = DType::Unset;
  CacheScale scale_scope = CacheScale::Unset;
  DType output_dtype = DType::Unset;  // Unset: in place

  bool is_in_place() const { return output_dtype == DType::Unset; }
  Shape key_shape() const { return {3, {query_shape[0], key_heads, query_shape.last()}}; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, query_shape).required().from("query.shape"),
    PLANQ_FIELD(Fields, key_heads).required(),
    PLANQ_FIELD(Fields, value_dim).count(),
    PLANQ_FIELD(Fields, rotary_dim).count(),
    PLANQ_FIELD(Fields, pairs),
    PLANQ_FIELD(Fields, dtype).required().from("query.dtype"),
    PLANQ_FIELD(Fields, position_dtype).from("position.dtype"),
    PLANQ_FIELD(Fields, max_position).required(),
    PLANQ_FIELD(Fields, norm_weight_dtype).from("query_weight.dtype"),
    PLANQ_FIELD(Fields, pages).required(),
    PLANQ_FIELD(Fields, page_size).required(),
    PLANQ_FIELD(Fields, layout),
    PLANQ_FIELD(Fields, cache_dtype),
    PLANQ_FIELD(Fields, scale_scope),
    PLANQ_FIELD(Fields, output_dtype).from("query_output.dtype"),
};

// Positions in Operands.
enum Operand : int {
  kQuery,
  kKey,
  kValue,
  kKeyCache,
  kValueCache,
  kCosSin,
  kPosition,
  kSlot,
  kQueryWeight,
  kKeyWeight,
  kEps,
  kKeyScale,
  kValueScale,
  kQueryOutput,
  kInvalid
};
// Of what is turned in place.
constexpr Rule turned_role() { return when(is_set("output_dtype"), Role::Input, Role::InOut); }
inline constexpr auto kOperands = operands(
    kFields,
    {{"query", turned_role(), "dtype", "query_shape"},
     {"key", turned_role(), "dtype",
      axes(axis_of("query_shape", 0), "key_heads", last_of("query_shape"))},
     {"value", Role::Input, "dtype", axes(axis_of("query_shape", 0), "key_heads", "value_dim"),
      is_set("value_dim")},
     {"key_cache", Role::InOut, "cache_dtype",
      kv_cache::pages_of("key_heads", last_of("query_shape"))},
     {"value_cache", Role::InOut, "cache_dtype", kv_cache::pages_of("key_heads", "value_dim"),
      is_set("value_dim")},
     {"cos_sin", Role::Input, DType::Float32, axes("max_position", "rotary_dim")},
     {"position", Role::Input, "position_dtype", axis_of("query_shape", 0)},
     {"slot", Role::Input, DType::Int64, axis_of("query_shape", 0)},
     {"query_weight", Role::Input, "norm_weight_dtype", last_of("query_shape"),
      is_set("norm_weight_dtype")},
     {"key_weight", Role::Input, "norm_weight_dtype", last_of("query_shape"),
      is_set("norm_weight_dtype")},
     scalar("eps", Role::Input, DType::Float64, is_set("norm_weight_dtype")),
     {"key_scale", kv_cache::scale_role(), DType::Float32, kv_cache::scales_of("key_heads"),
      is("cache_dtype", kv_cache::is_code)},
     {"value_scale", kv_cache::scale_role(), DType::Float32, kv_cache::scales_of("key_heads"),
      is("cache_dtype", kv_cache::is_code) && is_set("value_dim")},
     {"query_output", Role::Output, "output_dtype", "query_shape", is_set("output_dtype")},
     {"invalid", Role::Output, DType::Int64, 2}});

// The operators that it is made of: rotary_embedding, then kv_cache_append.
std::array<Descriptor, 2> parts_of(const Descriptor& descriptor, Fault& fault);

// All kernels promise the same.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis =
        std::string_view("the plans of rotary_embedding and kv_cache_append, one after the other")};

// Kernels of both backends whose parts are whole operators.
Reason rejects_parts_of(const Descriptor& descriptor, const Device& device);
std::size_t workspace(const Descriptor& descriptor, const Device& device);
std::size_t prepared_workspace(const Descriptor& descriptor, const State& state);
Status prepare(const Descriptor& descriptor, const Device& device, State& state);
Status bind(const Call& call, Bound& bound);

template <DType kType, DType kCacheType>
Reason rejects_types(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "dtype", kType, f.dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "cache_dtype", kCacheType, f.cache_dtype);
}
// Of the kernels that are made of parts.
template <DType kType, DType kCacheType>
Reason rejects(const Descriptor& descriptor, const Device& device) {
  const Reason reason = rejects_types<kType, kCacheType>(descriptor);
  if (!reason.accepted()) return reason;
  if (!descriptor.as<Fields>().is_in_place())
    return Reason::refuse(ReasonKind::Feature, "turns queries and keys in place");
  return rejects_parts_of(descriptor, device);
}

template <Backend kBackend, DType kType, DType kCacheType>
constexpr Kernel make_parts_kernel() {
  constexpr bool kIsCuda = kBackend == Backend::Cuda;
  return {.op = "rotary_kv_cache_append",
          .body = "parts",
          .dtypes = kDTypes<kType, kCacheType>,
          .revision = 1,
          .backend = kBackend,
          .arch = {kIsCuda ? 80 : 0},
          .rank = kIsCuda ? 1 : 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kType, kCacheType>,
          .workspace = workspace,
          .prepare = prepare,
          .bind = bind,
          .largest_workspace = workspace,
          .prepared_workspace = prepared_workspace};
}
template <Backend kBackend, DType kType>
constexpr std::array kPartsOfType = {make_parts_kernel<kBackend, kType, kType>(),
                                     make_parts_kernel<kBackend, kType, DType::Int8>(),
                                     make_parts_kernel<kBackend, kType, DType::Float8E4M3FN>(),
                                     make_parts_kernel<kBackend, kType, DType::Float8E5M2>()};
// Of float32, which is rounded as well.
template <Backend kBackend>
constexpr std::array kRoundingParts = {
    make_parts_kernel<kBackend, DType::Float32, DType::Float16>(),
    make_parts_kernel<kBackend, DType::Float32, DType::BFloat16>()};
template <Backend kBackend>
constexpr auto kPartsKernels =
    joined(kPartsOfType<kBackend, DType::Float16>, kPartsOfType<kBackend, DType::BFloat16>,
           kPartsOfType<kBackend, DType::Float32>, kRoundingParts<kBackend>);

// Where a call has its heads, and its cache.
inline position::HeadOperands head_operands_of(const Operands& own) {
  return {own[kQuery],       own[kKey],       own[kCosSin], own[kPosition],
          own[kQueryWeight], own[kKeyWeight], own[kEps]};
}
inline kv_cache::Cache cache_of(const Call& call) {
  const Fields& f = call.fields<Fields>();
  const Operands& own = call.operands;
  return {f,
          f.key_shape(),
          {own[kKey], own[kValue], own[kKeyCache], own[kValueCache], own[kSlot], own[kKeyScale],
           own[kValueScale]}};
}

}  // namespace planq::rotary_kv_cache_append
