#include "ops/linear/matmul_int8/desc.h"

#include "core/rows.h"

namespace planq::matmul_int8 {

namespace {

constexpr DType kOutputs[] = {DType::Int32, DType::Int8};

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kIntegerCodes); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("weight_dtype", f.weight_dtype, checks::kIntegerCodes);
      !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, kOutputs); !fault.ok())
    return fault;
  if (Fault fault = checks::gemm_shapes(f.input(), f.weight()); !fault.ok()) return fault;
  return checks::sum_in_range("input_shape", f.input().terms(),
                              checks::largest_code(f.input_dtype, Mode::Symmetric) *
                                  checks::largest_code(f.weight_dtype, Mode::Symmetric));
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"matmul_int8", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::matmul_int8
