// merge_attention_states: what two sets of keys make of the same queries, as what all of these keys
// make of them.
#pragma once

#include <string_view>

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/attention/states.h"

namespace planq::merge_attention_states {

struct Fields {
  Shape shape;  // (tokens, heads, columns)
  DType dtype = DType::Unset;

  std::int64_t rows() const { return shape[0] * shape[1]; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("output_a.shape"),
    PLANQ_FIELD(Fields, dtype).required().from("output_a.dtype"),
};

// Positions in Operands.
enum Operand : int { kOutputA, kLseA, kOutputB, kLseB, kOutput, kLse };
inline constexpr auto kOperands =
    operands(kFields, {{"output_a", Role::Input, "dtype", "shape"},
                       {"lse_a", Role::Input, DType::Float32, leading("shape")},
                       {"output_b", Role::Input, "dtype", "shape"},
                       {"lse_b", Role::Input, DType::Float32, leading("shape")},
                       {"output", Role::Output, "dtype", "shape"},
                       {"lse", Role::Output, DType::Float32, leading("shape")}});

// All kernels promise the same.
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = std::string_view(
        "each element alone, by IEEE operations of float32 in a fixed order; one rounding at the "
        "end")};

template <DType kType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "dtype", kType, descriptor.as<Fields>().dtype);
}

// A head of a token in an operand.
template <class E>
struct Heads {
  E* data;
  std::int64_t token, head;

  explicit Heads(const OperandView& view)
      : data(static_cast<E*>(view.data)), token(view.strides[0]), head(view.strides[1]) {}
  PLANQ_HD E* at(std::int64_t own_token, std::int64_t own_head) const {
    return data + own_token * token + own_head * head;
  }
};

}  // namespace planq::merge_attention_states
