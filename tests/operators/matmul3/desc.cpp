#include "desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::matmul3 {
namespace {

Fault expect_matrix(std::string_view field, const Shape& shape, std::int64_t rows,
                    std::int64_t columns) {
  if (Fault fault = checks::shape(field, shape, 0); !fault.ok()) return fault;
  const Shape expected{2, {rows, columns}};
  if (shape == expected) return {};
  return {std::string(field), "expected " + shape_text(expected.dims.data(), 2) + ", got " +
                                  shape_text(shape.dims.data(), shape.rank)};
}

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (f.a_shape.rank != 2) return {"a_shape", "expected two axes"};
  if (Fault fault = checks::shape("a_shape", f.a_shape, 2); !fault.ok()) return fault;
  if (Fault fault = expect_matrix("b_shape", f.b_shape, f.b_shape[0], f.a_shape[1]); !fault.ok())
    return fault;
  return expect_matrix("output_shape", f.output_shape, f.a_shape[0], f.b_shape[0]);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"matmul3", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::matmul3
