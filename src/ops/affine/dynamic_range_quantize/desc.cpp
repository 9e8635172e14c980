#include "ops/affine/dynamic_range_quantize/desc.h"

#include <cmath>
#include <string>

#include "ops/affine/checks.h"

namespace planq::dynamic_range_quantize {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kFloats); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kCodes); !fault.ok())
    return fault;
  if (Fault fault = checks::scope(f.scope, f.shape); !fault.ok()) return fault;
  if (f.mode == Mode::Symmetric && is_unsigned(f.output_dtype))
    return {"mode", "a symmetric range needs a signed output_dtype, got " +
                        std::string(name_of(f.output_dtype)) + "; use Mode.ASYMMETRIC"};
  if (Fault fault = checks::integers(f.mode, f.output_dtype); !fault.ok()) return fault;
  if (Fault fault = checks::ratio(f.mode, f.quotient); !fault.ok()) return fault;
  if (Fault fault = checks::bounds(f.output_dtype, f.mode, f.q_min, f.q_max); !fault.ok())
    return fault;
  return checks::scale_dtype(f.input_dtype, f.scale_dtype);
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  const Shape parameters = parameter_shape(f);
  Shape codes = f.shape;
  if (is_four_bit(f.output_dtype)) codes[codes.rank - 1] = (codes.last() + 1) / 2;
  specs[kInput].expect(f.input_dtype, f.shape);
  specs[kOutput].expect(f.output_dtype, codes);
  specs[kScale].expect(f.scale_dtype, parameters);
  specs[kZeroPoint].expect(DType::Int32, parameters, f.mode == Mode::Asymmetric);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "dynamic_range_quantize", kFields, kOperands, resolve, specify, kTables};

}  // namespace planq::dynamic_range_quantize
