// The heads of queries and keys for both backends: where they lie, and at which position each is.
#pragma once

#include <cstdint>

#include "core/operands.h"
#include "core/scalar.h"
#include "math/formats.h"
#include "math/functions.h"
#include "ops/norm/arithmetic.h"
#include "ops/position/vocabulary.h"

namespace planq::math {

// A pair (a, b) turned by an angle.
struct TurnedPair {
  float a, b;
};
PLANQ_HD TurnedPair turned(float a, float b, float cosine, float sine) {
  return {fused(a, cosine, -(b * sine)), fused(b, cosine, a * sine)};
}

}  // namespace planq::math

namespace planq::position {

inline constexpr std::int64_t kMostColumns = 1024;

// Heads of a tensor; strides are in elements.
struct Tensor {
  void* data = nullptr;
  std::int64_t token = 0, head = 0;
  const void* weight = nullptr;

  Tensor() = default;
  Tensor(const OperandView& view, const OperandView& own_weight)
      : data(view.data), token(view.strides[0]), head(view.strides[1]), weight(own_weight.data) {}
};

// What a call has of heads and their positions. Weights without data: there is no norm.
struct HeadOperands {
  const OperandView &query, &key, &cos_sin, &position, &query_weight, &key_weight, &eps;
};

// Heads are numbered token by token: first those of the query, then those of the key.
struct Heads {
  Tensor query, key;
  const float* table;
  const void* positions;
  FloatScalar eps;
  std::int64_t tokens, query_heads, of_token, table_row, max_position;
  int columns, rotary;
  math::Length length;  // the columns, of which a norm takes a mean
  DType weight_dtype;
  bool is_wide, is_interleaved;

  template <class Fields>
  Heads(const Fields& f, const HeadOperands& own)
      : query(own.query, own.query_weight),
        table(static_cast<const float*>(own.cos_sin.data)),
        positions(own.position.data),
        eps(float_of(own.eps)),
        table_row(own.cos_sin.strides[0]) {
    if (f.key_heads > 0) key = {own.key, own.key_weight};
    tokens = f.query_shape[0];
    query_heads = f.query_shape[1];
    of_token = query_heads + f.key_heads;
    max_position = f.max_position;
    columns = static_cast<int>(f.query_shape.last());
    length = math::Length(columns);
    rotary = static_cast<int>(f.rotary_dim);
    weight_dtype = f.norm_weight_dtype;
    is_wide = f.position_dtype == DType::Int64;
    is_interleaved = f.pairs == RotaryPairs::Interleaved;
  }

  PLANQ_HD std::int64_t position(std::int64_t token) const {
    return is_wide ? static_cast<const std::int64_t*>(positions)[token]
                   : static_cast<const std::int32_t*>(positions)[token];
  }
  PLANQ_HD bool has(std::int64_t position) const {
    return static_cast<std::uint64_t>(position) < static_cast<std::uint64_t>(max_position);
  }
  // The cosines of a position; its sines stand `rotary / 2` behind them.
  PLANQ_HD const float* cosines(std::int64_t position) const {
    return table + position * table_row;
  }
  template <class T>
  PLANQ_HD T* row(std::int64_t token, std::int64_t head) const {
    const bool is_key = head >= query_heads;
    const Tensor& own = is_key ? key : query;
    return static_cast<T*>(own.data) + token * own.token +
           (is_key ? head - query_heads : head) * own.head;
  }
  PLANQ_HD const void* weight(std::int64_t head) const {
    return head >= query_heads ? key.weight : query.weight;
  }
};

}  // namespace planq::position
