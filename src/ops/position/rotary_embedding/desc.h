// rotary_embedding: pairs of elements of queries and keys, turned by angles that go with a token's
// position. Heads are normalised before, if wanted. How many positions the table lacks is counted.
#pragma once

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/position/heads.h"

namespace planq::rotary_embedding {

using position::kMostColumns;

struct Fields {
  Shape query_shape;           // (tokens, heads, columns)
  std::int64_t key_heads = 0;  // 0: there is no key
  std::int64_t rotary_dim = 0;
  RotaryPairs pairs = RotaryPairs::Neox;
  DType dtype = DType::Unset;
  DType position_dtype = DType::Int64;
  std::int64_t max_position = 0;
  DType norm_weight_dtype = DType::Unset;

  bool has_norm() const { return norm_weight_dtype != DType::Unset; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, query_shape).required().from("query.shape"),
    PLANQ_FIELD(Fields, key_heads).count(),
    PLANQ_FIELD(Fields, rotary_dim).count(),
    PLANQ_FIELD(Fields, pairs),
    PLANQ_FIELD(Fields, dtype).required().from("query.dtype"),
    PLANQ_FIELD(Fields, position_dtype).from("position.dtype"),
    PLANQ_FIELD(Fields, max_position).required(),
    PLANQ_FIELD(Fields, norm_weight_dtype).from("query_weight.dtype"),
};

// Positions in Operands.
enum Operand : int { kQuery, kKey, kCosSin, kPosition, kQueryWeight, kKeyWeight, kEps, kInvalid };
inline constexpr auto kOperands = operands(
    kFields,
    {{"query", Role::InOut, "dtype", "query_shape"},
     {"key", Role::InOut, "dtype",
      axes(axis_of("query_shape", 0), "key_heads", last_of("query_shape")), is_set("key_heads")},
     {"cos_sin", Role::Input, DType::Float32, axes("max_position", "rotary_dim")},
     {"position", Role::Input, "position_dtype", axis_of("query_shape", 0)},
     {"query_weight", Role::Input, "norm_weight_dtype", last_of("query_shape"),
      is_set("norm_weight_dtype")},
     {"key_weight", Role::Input, "norm_weight_dtype", last_of("query_shape"),
      is_set("norm_weight_dtype") && is_set("key_heads")},
     scalar("eps", Role::Input, DType::Float64, is_set("norm_weight_dtype")),
     {"invalid", Role::Output, DType::Int64, 1}});

// Where a call has its heads.
inline position::HeadOperands operands_of(const Call& call) {
  const Operands& own = call.operands;
  return {own[kQuery],       own[kKey],       own[kCosSin], own[kPosition],
          own[kQueryWeight], own[kKeyWeight], own[kEps]};
}
inline position::Heads heads_of(const Call& call) {
  return {call.fields<Fields>(), operands_of(call)};
}

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
        "IEEE operations of float32 in a fixed order; squares of a head added by a tree that its "
        "length fixes; one rounding after the norm and one after the turn"};

template <DType kType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "dtype", kType, descriptor.as<Fields>().dtype);
}

}  // namespace planq::rotary_embedding
