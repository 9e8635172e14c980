#include "ops/affine/dynamic_range_quantize/desc.h"

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

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

// Other conventions leave little to choose but the input: this is what each fixes.
struct FixedFormat {
  std::string_view name;
  std::span<const DType> outputs;
  DType scale_dtype;
  std::int64_t size;       // of a group; 0: tokens have the scales
  bool whole;              // groups have no rest
  Quotient quotient;       // the only one that the formulas know
  bool saturates = false;  // any NonFinite goes with it
};
constexpr DType kGgmlCodes[] = {DType::Int8, DType::Int4};
constexpr DType kMxCodes[] = {DType::Float4E2M1FN, DType::Float8E4M3FN, DType::Float8E5M2};
constexpr DType kNvfp4Codes[] = {DType::Float4E2M1FN};
constexpr DType kVllmCodes[] = {DType::Float8E4M3FN};
constexpr FixedFormat kGgml{"GGML",     kGgmlCodes, DType::Float16,
                            kGgmlBlock, true,       Quotient::Reciprocal};
constexpr FixedFormat kMx{"MX",           kMxCodes, DType::Float8E8M0FNU,
                          math::kMxGroup, false,    Quotient::Divide};
constexpr FixedFormat kMxRoundUp{"MX_ROUND_UP",  kMxCodes, DType::Float8E8M0FNU,
                                 math::kMxGroup, false,    Quotient::Divide};
constexpr FixedFormat kNvfp4{"NVFP4",           kNvfp4Codes, DType::Float8E4M3FN,
                             math::kNvfp4Group, false,       Quotient::Reciprocal};
constexpr FixedFormat kVllm{"VLLM", kVllmCodes, DType::Float32, 0, false, Quotient::Divide, true};

constexpr const FixedFormat* format_by(Convention convention) {
  switch (convention) {
    case Convention::Ggml:
      return &kGgml;
    case Convention::Mx:
      return &kMx;
    case Convention::MxRoundUp:
      return &kMxRoundUp;
    case Convention::Nvfp4:
      return &kNvfp4;
    case Convention::Vllm:
      return &kVllm;
    default:
      return nullptr;
  }
}

Fault check_scope(const Fields& f, const std::string& name, const FixedFormat& format) {
  if (format.size == 0 && f.scope.kind == ScopeKind::Token) return {};
  if (format.size == 0) return {"scope", name + " has a scale for each token: Scope.token()"};
  const int last = f.shape.rank - 1;
  if (f.scope.kind != ScopeKind::Group || f.scope.axis != last || f.scope.size != format.size)
    return {"scope",
            name + " has groups of " + std::to_string(format.size) + " along the last axis"};
  if (format.whole && f.shape.last() % format.size != 0)
    return {"shape", name + " has whole groups of " + std::to_string(format.size) +
                         ", got a last axis of " + std::to_string(f.shape.last())};
  return {};
}

// The codes of a format: all but the lowest of int8.
Fault resolve_codes(Fields& f, const std::string& name) {
  const FormatInfo& codes = format_of(f.output_dtype);
  const double lowest = f.output_dtype == DType::Int8 ? -codes.largest : codes.lowest();
  if (std::isnan(f.q_min)) f.q_min = lowest;
  if (std::isnan(f.q_max)) f.q_max = codes.largest;
  if (f.q_min != lowest) return {"q_min", name + " has q_min " + checks::number(lowest)};
  if (f.q_max != codes.largest)
    return {"q_max", name + " has q_max " + checks::number(codes.largest)};
  return {};
}

// The rules of division and of what is not finite.
Fault resolve_rules(Fields& f, const std::string& name, const FixedFormat& format) {
  if (format.quotient == Quotient::Divide && f.quotient != Quotient::Divide)
    return {"quotient", name + " divides: Quotient.DIVIDE"};
  if (f.quotient == Quotient::Ratio)
    return {"quotient", name + " multiplies by 1 / scale: Quotient.RECIPROCAL"};
  if (f.nonfinite != NonFinite::Propagate && !format.saturates)
    return {"nonfinite", name + " goes with NonFinite.PROPAGATE"};
  f.quotient = format.quotient;
  return {};
}

Fault resolve_format(Fields& f, const FixedFormat& format) {
  constexpr DType kInputs[] = {DType::Float16, DType::BFloat16, DType::Float32};
  const DType scales[] = {format.scale_dtype};
  const std::string name = "Convention." + std::string(format.name);
  if (f.scale_dtype == DType::Unset) f.scale_dtype = format.scale_dtype;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kInputs); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, format.outputs); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("scale_dtype", f.scale_dtype, scales); !fault.ok()) return fault;
  if (Fault fault = check_scope(f, name, format); !fault.ok()) return fault;
  if (f.mode != Mode::Symmetric) return {"mode", name + " goes with Mode.SYMMETRIC"};
  if (Fault fault = resolve_codes(f, name); !fault.ok()) return fault;
  return resolve_rules(f, name, format);
}

// A range as float32 has it, which the kernels take.
Fault check_scale_ub(const Fields& f) {
  if (std::isnan(f.scale_ub)) return {};
  if (f.convention != Convention::Vllm) return {"scale_ub", "goes with Convention.VLLM"};
  const auto bound = static_cast<float>(f.scale_ub);
  if (bound > 0 && math::is_finite(bound)) return {};
  return {"scale_ub",
          "expected a finite number above 0 in float32, got " + checks::number(f.scale_ub)};
}

Fault resolve_convention(Fields& f) {
  switch (f.convention) {
    case Convention::Planq:
      return {};
    case Convention::CompressedTensors:
      return resolve_compressed_tensors(f);
    default:
      break;
  }
  if (const FixedFormat* format = format_by(f.convention)) return resolve_format(f, *format);
  return {"convention",
          "expected planq, compressed_tensors, ggml, mx, mx_round_up, nvfp4 or vllm, got " +
              std::string(name_of(f.convention))};
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kFloats); !fault.ok())
    return fault;
  // A fixed format checks its codes and scales itself.
  const bool fixed = format_by(f.convention) != nullptr;
  if (!fixed)
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
  if (Fault fault = check_scale_ub(f); !fault.ok()) return fault;
  return fixed ? Fault{} : checks::scale_dtype(f.input_dtype, f.scale_dtype);
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
