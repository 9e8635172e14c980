#include "ops/affine/dynamic_range_quantize/desc.h"

#include <cmath>
#include <string>

#include "core/rows.h"
#include "ops/affine/checks.h"

namespace planq::dynamic_range_quantize {

namespace {

// All of the type's codes, and a scale of the input's own type.
Fault resolve_compressed_tensors(Fields& f) {
  const char* const field = f.mode != Mode::Symmetric       ? "mode"
                            : f.quotient == Quotient::Ratio ? "quotient"
                                                            : nullptr;
  if (field)
    return {field,
            "Convention.COMPRESSED_TENSORS goes with Mode.SYMMETRIC, and with Quotient.DIVIDE "
            "or RECIPROCAL"};
  if (std::isnan(f.q_min)) f.q_min = format_of(f.output_dtype).lowest();
  if (f.scale_dtype == DType::Unset) f.scale_dtype = f.input_dtype;
  return {};
}

// GGML's formats leave nothing to choose but the input.
Fault resolve_ggml(Fields& f) {
  constexpr DType kInputs[] = {DType::Float16, DType::BFloat16, DType::Float32};
  constexpr DType kOutputs[] = {DType::Int8, DType::Int4};
  constexpr DType kScales[] = {DType::Float16};
  if (f.scale_dtype == DType::Unset) f.scale_dtype = DType::Float16;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kInputs); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, kOutputs); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("scale_dtype", f.scale_dtype, kScales); !fault.ok()) return fault;
  const bool byte = f.output_dtype == DType::Int8;
  const double lowest = byte ? -127 : -8, largest = byte ? 127 : 7;
  if (std::isnan(f.q_min)) f.q_min = lowest;
  if (std::isnan(f.q_max)) f.q_max = largest;
  const int last = f.shape.rank - 1;
  if (f.scope.kind != ScopeKind::Group || f.scope.axis != last || f.scope.size != kGgmlBlock)
    return {"scope", "Convention.GGML has groups of 32 along the last axis"};
  if (f.shape.last() % kGgmlBlock != 0)
    return {"shape", "Convention.GGML has whole groups of 32, got a last axis of " +
                         std::to_string(f.shape.last())};
  if (f.mode != Mode::Symmetric) return {"mode", "Convention.GGML goes with Mode.SYMMETRIC"};
  if (f.q_min != lowest) return {"q_min", "Convention.GGML has q_min " + checks::number(lowest)};
  if (f.q_max != largest) return {"q_max", "Convention.GGML has q_max " + checks::number(largest)};
  if (f.quotient == Quotient::Ratio)
    return {"quotient", "Convention.GGML multiplies by 1 / scale: Quotient.RECIPROCAL"};
  if (f.nonfinite != NonFinite::Propagate)
    return {"nonfinite", "Convention.GGML goes with NonFinite.PROPAGATE"};
  f.quotient = Quotient::Reciprocal;  // its formulas know no other
  return {};
}

Fault resolve_convention(Fields& f) {
  switch (f.convention) {
    case Convention::Planq:
      return {};
    case Convention::CompressedTensors:
      return resolve_compressed_tensors(f);
    case Convention::Ggml:
      return resolve_ggml(f);
    default:
      return {"convention", "expected planq, compressed_tensors or ggml, got " +
                                std::string(name_of(f.convention))};
  }
}

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
  if (Fault fault = resolve_convention(f); !fault.ok()) return fault;
  if (Fault fault = checks::bounds(f.output_dtype, f.mode, f.q_min, f.q_max); !fault.ok())
    return fault;
  return checks::scale_dtype(f.input_dtype, f.scale_dtype);
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  return rows::of_scope(f.shape, f.scope);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "dynamic_range_quantize", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::dynamic_range_quantize
