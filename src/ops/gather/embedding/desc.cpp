#include "ops/gather/embedding/desc.h"

#include <string>

#include "core/rows.h"
#include "ops/affine/checks.h"

namespace planq::embedding {

namespace {

constexpr DType kTableTypes[] = {DType::Float16, DType::BFloat16, DType::Float32, DType::Int8,
                                 DType::Int4};
constexpr DType kNumbers[] = {DType::Float16, DType::BFloat16, DType::Float32};
constexpr DType kIndices[] = {DType::Int32, DType::Int64};

// A scale for each row, or for each group of neighbours in it.
Fault resolve_scales(Fields& f) {
  if (!has_codes(f.table_dtype)) {
    const std::string got = ", got " + std::string(name_of(f.table_dtype));
    if (f.scope.kind != ScopeKind::Token)
      return {"scope", "only tables of codes have scales of a scope" + got};
    if (f.scale_dtype != DType::Unset)
      return {"scale_dtype", "only tables of codes have scales" + got};
    return {};
  }
  if (Fault fault = checks::scope(f.scope, f.shape); !fault.ok()) return fault;
  const bool groups = f.scope.kind == ScopeKind::Group && f.scope.axis == f.shape.rank - 1;
  if (f.scope.kind != ScopeKind::Token && !groups)
    return {"scope", "expected token() or group(size) along the last axis, got " +
                         std::string(name_of(f.scope.kind))};
  if (f.scale_dtype == DType::Unset) f.scale_dtype = DType::Float32;
  return checks::dtype("scale_dtype", f.scale_dtype, kNumbers);
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 2); !fault.ok()) return fault;
  if (f.table_rows < 0)
    return {"table_rows", "expected 0 or more, got " + std::to_string(f.table_rows)};
  if (Fault fault = checks::shape("table_rows", f.table_shape(), 2); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("table_dtype", f.table_dtype, kTableTypes); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, kNumbers); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("index_dtype", f.index_dtype, kIndices); !fault.ok())
    return fault;
  return resolve_scales(f);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"embedding", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::embedding
