#include "ops/linear/linear_w8a8_dynamic/desc.h"

#include <algorithm>
#include <string>

#include "core/rows.h"
#include "ops/affine/checks.h"

namespace planq::linear_w8a8_dynamic {

namespace {

constexpr std::string_view kRenamed[][2] = {
    // A part's field, and the field of this operator that it was made from.
    {"shape", "input_shape"},
    {"scope", "input_scope"},
    {"mode", "input_mode"},
};

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (f.code_dtype == DType::Unset) f.code_dtype = DType::Int8;
  if (Fault fault = checks::dtype("code_dtype", f.code_dtype, checks::kIntegerCodes); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kFloats); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, checks::kFloats); !fault.ok())
    return fault;
  if (Fault fault = checks::scale_dtype(f.output_dtype, f.scale_dtype); !fault.ok()) return fault;
  if (f.convention != Convention::Planq && f.convention != Convention::Baracuda)
    return {"convention",
            "expected planq or baracuda, whose scales are those that are measured, "
            "got " +
                std::string(name_of(f.convention))};
  // The parts check the rest.
  Fault fault;
  parts_of(descriptor, fault);
  return fault;
}

// A part's fault, with the name that the field has here.
Fault renamed(Fault fault) {
  for (const auto& [part, whole] : kRenamed)
    if (fault.field == part) fault.field = whole;
  return fault;
}

Descriptor quantization(const Descriptor& whole, Fault& fault) {
  const Fields& f = whole.as<Fields>();
  return PartMaker(whole, "dynamic_range_quantize")
      .set_shape("shape", "input_shape")
      .set("input_dtype", f.input_dtype)
      .set("output_dtype", f.code_dtype)
      .set("scope", f.input_scope)
      .set("mode", f.input_mode)
      .set("scale_dtype", f.scale_dtype)
      .set("quotient", f.quotient)
      .set("nonfinite", f.nonfinite)
      .make(fault);
}

Descriptor sums(const Descriptor& whole, Fault& fault) {
  return PartMaker(whole, "code_sum")
      .set_shape("shape", "input_shape")
      .set("input_dtype", whole.as<Fields>().code_dtype)
      .make(fault);
}

Descriptor gemm(const Descriptor& whole, Fault& fault) {
  const Fields& f = whole.as<Fields>();
  return PartMaker(whole, "linear_w8a8")
      .set_shape("input_shape", "input_shape")
      .set_shape("weight_shape", "weight_shape")
      .set("input_dtype", f.code_dtype)
      .set("weight_dtype", f.weight_dtype)
      .set("output_dtype", f.output_dtype)
      .set("input_scope", f.input_scope)
      .set("weight_scope", f.weight_scope)
      .set("input_mode", f.input_mode)
      .set("weight_mode", f.weight_mode)
      .set("scale_dtype", f.scale_dtype)
      .set("bias_dtype", f.bias_dtype)
      .set("residual_dtype", f.residual_dtype)
      .set("convention", f.convention)
      .make(fault);
}

}  // namespace

PartDescriptors parts_of(const Descriptor& descriptor, Fault& fault) {
  PartDescriptors parts;
  const auto add = [&](Descriptor (*make)(const Descriptor&, Fault&)) {
    if (!fault.ok()) return;
    parts.all[parts.count++] = make(descriptor, fault);
    fault = renamed(fault);
  };
  add(quantization);
  if (descriptor.as<Fields>().weight_mode == Mode::Asymmetric) add(sums);
  add(gemm);
  return parts;
}

namespace {

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  return rows::of_scope(f.input_shape, f.input_scope);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"linear_w8a8_dynamic", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::linear_w8a8_dynamic
