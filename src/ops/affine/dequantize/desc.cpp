#include "ops/affine/dequantize/desc.h"

#include "core/rows.h"
#include "ops/affine/checks.h"

namespace planq::dequantize {

namespace {

constexpr DType kInputs[] = {DType::Int8,  DType::UInt8,        DType::Int4,      DType::UInt4,
                             DType::Int32, DType::Float8E4M3FN, DType::Float8E5M2};

Fault resolve_accumulator(const Fields& f) {
  const bool accumulator = f.input_dtype == DType::Int32;
  if (f.scope.kind == ScopeKind::Pair && !accumulator)
    return {"scope", "row and column scales are for int32 accumulators, got " +
                         std::string(name_of(f.input_dtype))};
  if (accumulator && f.mode == Mode::Asymmetric)
    return {"mode", "int32 accumulators have no zero point; use Mode.SYMMETRIC"};
  if (f.bias_dtype == DType::Unset) return {};
  if (!accumulator)
    return {"bias_dtype",
            "a bias is for int32 accumulators, got " + std::string(name_of(f.input_dtype))};
  return checks::dtype("bias_dtype", f.bias_dtype, checks::kFloats);
}

// Other libraries' scales are of accumulators, and bitsandbytes' of int8 codes too.
Fault resolve_convention(const Fields& f) {
  if (f.convention == Convention::Planq) return {};
  const bool bitsandbytes = f.convention == Convention::BitsAndBytes;
  if (!bitsandbytes && f.convention != Convention::Baracuda)
    return {"convention",
            "expected planq, bitsandbytes or baracuda, got " + std::string(name_of(f.convention))};
  const std::string name = bitsandbytes ? "Convention.BITSANDBYTES" : "Convention.BARACUDA";
  if (f.input_dtype != DType::Int32 && !(bitsandbytes && f.input_dtype == DType::Int8))
    return {"input_dtype", name + " is for int32 accumulators" +
                               (bitsandbytes ? " and int8 codes" : "") + ", got " +
                               std::string(name_of(f.input_dtype))};
  const bool pair = f.input_dtype == DType::Int32;
  if (f.scope.kind != (pair ? ScopeKind::Pair : ScopeKind::Token))
    return {"scope", name + " of " + std::string(name_of(f.input_dtype)) + " goes with Scope." +
                         (pair ? "pair()" : "token()")};
  if (f.mode != Mode::Symmetric) return {"mode", name + " goes with Mode.SYMMETRIC"};
  return {};
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kInputs); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kFloats); !fault.ok())
    return fault;
  if (Fault fault = checks::scope(f.scope, f.shape, true); !fault.ok()) return fault;
  if (Fault fault = resolve_accumulator(f); !fault.ok()) return fault;
  if (Fault fault = resolve_convention(f); !fault.ok()) return fault;
  if (f.mode == Mode::Asymmetric && is_fp8(f.input_dtype))
    return {"mode", "fp8 codes have no zero point; use Mode.SYMMETRIC"};
  if (Fault fault = checks::zero_point_dtype(f.input_dtype, f.mode, f.zero_point_dtype);
      !fault.ok())
    return fault;
  return checks::scale_dtype(f.output_dtype, f.scale_dtype);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"dequantize", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::dequantize
