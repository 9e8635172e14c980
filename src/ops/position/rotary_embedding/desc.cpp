#include "ops/position/rotary_embedding/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::rotary_embedding {

namespace {

constexpr DType kNumbers[] = {DType::Float16, DType::BFloat16, DType::Float32};
constexpr DType kPositions[] = {DType::Int32, DType::Int64};

Fault resolve_table(Fields& f) {
  const std::int64_t columns = f.query_shape.last();
  if (f.rotary_dim == 0) f.rotary_dim = columns;
  if (f.rotary_dim < 2 || f.rotary_dim % 2 != 0 || f.rotary_dim > columns)
    return {"rotary_dim", "expected an even number from 2 to the " + std::to_string(columns) +
                              " columns of a head, got " + std::to_string(f.rotary_dim)};
  if (f.max_position < 0)
    return {"max_position", "expected 0 or more, got " + std::to_string(f.max_position)};
  return checks::shape("max_position", {2, {f.max_position, f.rotary_dim}}, 2);
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("query_shape", f.query_shape, 3); !fault.ok()) return fault;
  if (f.query_shape.rank != 3)
    return {"query_shape", "expected (tokens, heads, columns), got " +
                               std::to_string(f.query_shape.rank) + " axes"};
  if (f.query_shape.last() < 2 || f.query_shape.last() > kMostColumns)
    return {"query_shape", "expected heads of 2 to " + std::to_string(kMostColumns) +
                               " columns, got " + std::to_string(f.query_shape.last())};
  if (f.key_heads < 0)
    return {"key_heads", "expected 1 or more, or None, got " + std::to_string(f.key_heads)};
  const Shape key = {3, {f.query_shape[0], f.key_heads, f.query_shape.last()}};
  if (Fault fault = checks::shape("key_heads", key, 3); !fault.ok()) return fault;
  if (Fault fault = resolve_table(f); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("dtype", f.dtype, kNumbers); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("position_dtype", f.position_dtype, kPositions); !fault.ok())
    return fault;
  if (!f.has_norm()) return {};
  return checks::dtype("norm_weight_dtype", f.norm_weight_dtype, kNumbers);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"rotary_embedding", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::rotary_embedding
