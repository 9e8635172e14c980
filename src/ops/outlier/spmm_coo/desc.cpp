#include "ops/outlier/spmm_coo/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::spmm_coo {

namespace {

constexpr DType kWeights[] = {DType::Float16, DType::BFloat16, DType::Int8};

Fault check_weight(const Fields& f) {
  if (f.weight_shape.rank != 2)
    return {"weight_shape", "expected 2 axes, got " + std::to_string(f.weight_shape.rank)};
  if (Fault fault = checks::shape("weight_shape", f.weight_shape, 2); !fault.ok()) return fault;
  const int along = f.transpose_weight ? 0 : 1;
  if (f.weight_shape[along] == f.shape.last()) return {};
  return {"weight_shape", "expected " + std::to_string(f.shape.last()) + " along axis " +
                              std::to_string(along) + ", as the last axis of shape has, got " +
                              std::to_string(f.weight_shape[along])};
}

Shape output_shape(const Fields& f) {
  Shape shape = f.shape;
  shape[shape.rank - 1] = output_columns(f);
  return shape;
}

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = outlier::check_capacity(f.capacity); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("value_dtype", f.value_dtype, outlier::kElements); !fault.ok())
    return fault;
  if (Fault fault = check_weight(f); !fault.ok()) return fault;
  if (Fault fault = checks::shape("weight_shape", output_shape(f), 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("weight_dtype", f.weight_dtype, kWeights); !fault.ok())
    return fault;
  return checks::dtype("output_dtype", f.output_dtype, outlier::kElements);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"spmm_coo", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::spmm_coo
