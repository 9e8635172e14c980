#include "ops/affine/fake_quantize/desc.h"

#include "ops/affine/checks.h"

namespace planq::fake_quantize {

namespace {

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kFloats); !fault.ok())
    return fault;
  if (Fault fault = checks::rounding(f.rounding); !fault.ok()) return fault;
  if (f.dynamic && f.zero_point_dtype != DType::Unset && f.zero_point_dtype != DType::Int32)
    return {"zero_point_dtype",
            "a dynamic zero point is int32, got " + std::string(name_of(f.zero_point_dtype))};
  return checks::fake_codes(f);
}

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  const Shape parameters = parameter_shape(f.shape, f.scope);
  const bool stochastic = f.rounding == Rounding::Stochastic;
  specs[kInput].expect(f.input_dtype, f.shape);
  specs[kOutput].expect(f.input_dtype, f.shape);
  specs[kOutput].same_as = kInput;
  specs[kScale].expect(f.scale_dtype, parameters);
  specs[kZeroPoint].expect(f.zero_point_dtype, parameters, f.mode == Mode::Asymmetric);
  // Parameters that are measured go to the caller if wanted.
  for (const Operand parameter : {kScale, kZeroPoint}) {
    if (f.dynamic) specs[parameter].role = Role::Output;
    specs[parameter].optional = f.dynamic;
  }
  specs[kSeed].expect(DType::Int64, {}, stochastic);
  specs[kOffset].expect(DType::Int64, {}, stochastic);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"fake_quantize", kFields, kOperands, resolve, specify, kTables};

}  // namespace planq::fake_quantize
