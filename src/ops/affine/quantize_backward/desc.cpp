#include "ops/affine/quantize_backward/desc.h"

#include "core/rows.h"
#include "ops/affine/checks.h"

namespace planq::quantize_backward {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kFloats); !fault.ok())
    return fault;
  return checks::given_codes(f);
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  const Shape parameters = parameter_shape(f.shape, f.scope);
  specs[kGradOutput].expect(f.input_dtype, f.shape);
  specs[kInput].expect(f.input_dtype, f.shape);
  specs[kGradInput].expect(f.input_dtype, f.shape);
  specs[kGradInput].same_as = kGradOutput;
  specs[kScale].expect(f.scale_dtype, parameters);
  specs[kZeroPoint].expect(f.zero_point_dtype, packed_shape(parameters, f.zero_point_dtype),
                           f.mode == Mode::Asymmetric);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"quantize_backward", kFields, kOperands, resolve, specify,
                            rows::apart,         kTables};

}  // namespace planq::quantize_backward
