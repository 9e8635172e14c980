#include "ops/affine/dequantize/desc.h"

#include <cstdint>
#include <span>
#include <string>

#include "core/rows.h"
#include "ops/affine/checks.h"

namespace planq::dequantize {

namespace {

constexpr DType kInputs[] = {DType::Int8,  DType::UInt8,        DType::Int4,      DType::UInt4,
                             DType::Int32, DType::Float8E4M3FN, DType::Float8E5M2};

bool is_format(Convention convention) {
  return convention == Convention::Mx || convention == Convention::MxRoundUp ||
         convention == Convention::Nvfp4;
}

// What a format of groups fixes; its codes have no zero point.
Fault resolve_format(Fields& f) {
  constexpr DType kMxCodes[] = {DType::Float4E2M1FN, DType::Float8E4M3FN, DType::Float8E5M2};
  constexpr DType kOutputs[] = {DType::Float16, DType::BFloat16, DType::Float32};
  if (f.convention == Convention::MxRoundUp)
    return {"convention", "mx_round_up chooses scales; mx reads its codes"};
  const bool mx = f.convention == Convention::Mx;
  const DType scales[] = {mx ? DType::Float8E8M0FNU : DType::Float8E4M3FN};
  const std::int64_t size = mx ? math::kMxGroup : math::kNvfp4Group;
  const std::string name = mx ? "Convention.MX" : "Convention.NVFP4";
  if (f.scale_dtype == DType::Unset) f.scale_dtype = scales[0];
  const std::span<const DType> codes(kMxCodes, mx ? std::size(kMxCodes) : 1);
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, codes); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, kOutputs); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("scale_dtype", f.scale_dtype, scales); !fault.ok()) return fault;
  if (f.scope.kind != ScopeKind::Group || f.scope.axis != f.shape.rank - 1 || f.scope.size != size)
    return {"scope", name + " has groups of " + std::to_string(size) + " along the last axis"};
  if (f.mode != Mode::Symmetric) return {"mode", name + " goes with Mode.SYMMETRIC"};
  if (f.bias_dtype != DType::Unset)
    return {"bias_dtype",
            "a bias is for int32 accumulators, got " + std::string(name_of(f.input_dtype))};
  return checks::zero_point_dtype(DType::Int32, f.mode, f.zero_point_dtype);
}

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
    return {"convention", "expected planq, bitsandbytes, baracuda, mx or nvfp4, got " +
                              std::string(name_of(f.convention))};
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
  if (is_format(f.convention)) {
    Fault fault = checks::scope(f.scope, f.shape, true);
    return fault.ok() ? resolve_format(f) : fault;
  }
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
