#include "ops/linear/linear_4bit/desc.h"

#include "core/rows.h"
#include "ops/codebook/checks.h"

namespace planq::linear_4bit {

namespace {

constexpr DType kCodes[] = {DType::UInt4, DType::Int4, DType::Float4E2M1FN},
                kIndices[] = {DType::UInt4};

Fault resolve_blocks(Fields& f) {
  if (Fault fault = checks::dtype("code_dtype", f.code_dtype, kIndices); !fault.ok()) return fault;
  std::int64_t entries = 0;
  if (Fault fault = checks::codebook("code_dtype", f.code_dtype, f.codebook, entries); !fault.ok())
    return fault;
  if (f.weight_scope.kind != ScopeKind::Tensor)
    return {"weight_scope", "expected tensor(), its default, beside block_size, got " +
                                std::string(name_of(f.weight_scope.kind))};
  f.weight_scope = {ScopeKind::Tensor};
  if (f.weight_mode != Mode::Symmetric)
    return {"weight_mode", "codes of a codebook have no zero point; use Mode.SYMMETRIC"};
  if (f.scale_dtype != DType::Float32)
    return {"scale_dtype", "blocks have an absmax, which is float32; leave it out"};
  return checks::nested_block_size(f.nested_block_size);
}

Fault resolve_groups(Fields& f) {
  if (f.weight_scope.kind == ScopeKind::Tensor)
    return {"block_size", "expected the size of blocks, or groups as weight_scope"};
  if (f.codebook != Codebook::Nf4)
    return {"codebook", "groups are of numbers, which have no codebook; leave it out"};
  if (f.nested_block_size != 0) return {"nested_block_size", "groups have no nested statistics"};
  return linear::coded_groups(f);
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = linear::coded_dtypes(f, kCodes); !fault.ok()) return fault;
  if (Fault fault = linear::coded_shapes(f); !fault.ok()) return fault;
  if (Fault fault = linear::coded_layout(f, NibbleOrder::HighFirst); !fault.ok()) return fault;
  if (Fault fault = f.has_blocks() ? resolve_blocks(f) : resolve_groups(f); !fault.ok())
    return fault;
  if (Fault fault = linear::coded_parameters(f); !fault.ok()) return fault;
  return linear::coded_accumulation(f);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"linear_4bit", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::linear_4bit
