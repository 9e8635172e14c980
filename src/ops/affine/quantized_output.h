// Results of another operator that leave it as codes: rounded to a floating type, as without codes,
// and then quantized as dynamic_range_quantize does it or, under scales that are given, as
// quantize. An operator with such outputs has these fields and operands beside its own, and kernels
// of its parts. So a kernel that does everything at once has bits to agree with.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "core/operands.h"
#include "core/parts.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "core/scope.h"
#include "core/sku.h"

namespace planq::affine {

// The fields, which an operator's Fields have as a member `quantized`.
struct QuantizedOutput {
  DType norm_dtype = DType::Unset;  // what results are rounded to before they become codes
  bool also_output = false;         // those results are an output too
  bool scale_given = false;
  Scope scope = {ScopeKind::Token};
  Mode mode = Mode::Symmetric;
  double q_min = kUnsetBound;
  double q_max = kUnsetBound;
  DType scale_dtype = DType::Unset;
  Quotient quotient = Quotient::Divide;
  NonFinite nonfinite = NonFinite::Propagate;
  bool include_zero = true;
  NibbleOrder nibble_order = NibbleOrder::LowFirst;
  Convention convention = Convention::Planq;
  double scale_ub = kUnsetBound;
};

// As lines of a field table; `at`: where the member is in Fields.
constexpr auto quantized_fields(std::size_t at) {
  std::array fields = {
      PLANQ_FIELD(QuantizedOutput, norm_dtype),
      PLANQ_FIELD(QuantizedOutput, also_output),
      PLANQ_FIELD(QuantizedOutput, scale_given),
      PLANQ_FIELD(QuantizedOutput, scope),
      PLANQ_FIELD(QuantizedOutput, mode),
      PLANQ_FIELD(QuantizedOutput, q_min),
      PLANQ_FIELD(QuantizedOutput, q_max),
      PLANQ_FIELD(QuantizedOutput, scale_dtype).from("scale.dtype"),
      PLANQ_FIELD(QuantizedOutput, quotient),
      PLANQ_FIELD(QuantizedOutput, nonfinite),
      PLANQ_FIELD(QuantizedOutput, include_zero),
      PLANQ_FIELD(QuantizedOutput, nibble_order),
      PLANQ_FIELD(QuantizedOutput, convention),
      PLANQ_FIELD(QuantizedOutput, scale_ub),
  };
  for (Field& field : fields) field.offset = static_cast<std::uint16_t>(field.offset + at);
  return fields;
}

// Whether results of this type are codes: these operators know three floating types.
constexpr bool is_code(DType output) {
  return output != DType::Float16 && output != DType::BFloat16 && output != DType::Float32;
}

// The operands, in this order behind `output`. Without codes there are none of them.
constexpr OperandLine codes_line() {
  return {"output", Role::Output, "output_dtype", packed_shape("shape", "output_dtype")};
}
constexpr OperandLine scale_line() {
  return {"scale", when("scale_given", Role::Input, Role::Output), "scale_dtype",
          parameter_shape("shape", "scope"), is("output_dtype", is_code)};
}
constexpr OperandLine zero_point_line() {
  return {"zero_point", when("scale_given", Role::Input, Role::Output), DType::Int32,
          parameter_shape("shape", "scope"), is("mode", Mode::Asymmetric)};
}
constexpr OperandLine inverse_tensor_scale_line() {
  return {"inverse_tensor_scale", Role::Input, DType::Float32, 1,
          is("convention", Convention::Nvfp4)};
}
constexpr OperandLine floating_output_line() {
  return {"floating_output", Role::Output, "norm_dtype", "shape", "also_output"};
}

// One of the three types, or of the codes.
Fault check_output_dtype(DType output_dtype);
// Checks the fields and fills in those that were left unset, behind the operator's own checks of
// `shape` and `input_dtype`. Without codes every field has to have its default.
Fault resolve(const Descriptor& descriptor, const Shape& shape, DType input_dtype,
              DType output_dtype, QuantizedOutput& output);

// The same of a call; those that a descriptor does not have are without data.
struct CodeOperands {
  const OperandView &output, &scale, &zero_point, &inverse_tensor_scale, &floating;

  // `at`: where the output is.
  CodeOperands(const Operands& all, std::size_t at)
      : output(all[at]),
        scale(all[at + 1]),
        zero_point(all[at + 2]),
        inverse_tensor_scale(all[at + 3]),
        floating(all[at + 4]) {}
};

// --- Kernels of parts ----------------------------------------------------------------------------

// The operator with a floating output, and what quantizes that.
std::array<Descriptor, 2> parts_of(const Descriptor& descriptor, DType output_dtype,
                                   const QuantizedOutput& output);

Status prepare_parts(const Descriptor& descriptor, const Device& device, DType output_dtype,
                     const QuantizedOutput& output, State& state);
// `of_kernels`: the bytes that the parts' kernels need.
std::size_t parts_workspace(const Shape& shape, const QuantizedOutput& output,
                            std::size_t of_kernels);
Status bind_parts(const Call& call, const Shape& shape, const QuantizedOutput& output,
                  Bound& bound);

// What all kernels with codes promise.
inline constexpr Guarantee kQuantizedGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis =
        "the bits of the operator with a floating output, and then of dynamic_range_quantize "
        "or quantize"};

// A kernel without a workspace that makes codes of one type of input.
template <DType kInputType, Backend kBackend, std::int32_t kFirstArch = 80>
constexpr Kernel quantized_kernel(std::string_view op, std::string_view body,
                                  decltype(Kernel::rejects) rejects,
                                  decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind) {
  return {.op = op,
          .variant = "quantized",
          .body = body,
          .dtypes = kDTypes<kInputType>,
          .revision = 1,
          .backend = kBackend,
          .arch = kBackend == Backend::Host ? ArchRange{} : ArchRange{kFirstArch, kLastArch},
          .rank = 0,
          .guarantee = kQuantizedGuarantee,
          .rejects = rejects,
          .workspace = no_workspace,
          .prepare = prepare,
          .bind = bind};
}

// One of parts.
template <class Fields, DType kInputType, Backend kBackend>
struct QuantizedParts {
  static Reason rejects(const Descriptor& descriptor, const Device& device) {
    const Fields& f = descriptor.as<Fields>();
    const Reason reason = expect(ReasonKind::DType, "input_dtype", kInputType, f.input_dtype);
    if (!reason.accepted()) return reason;
    if (!is_code(f.output_dtype))
      return Reason::refuse(ReasonKind::DType, "computes codes, not ", name_of(f.output_dtype));
    return rejects_parts(parts_of(descriptor, f.output_dtype, f.quantized), device);
  }
  static std::size_t workspace(const Descriptor& descriptor, const Device& device) {
    const Fields& f = descriptor.as<Fields>();
    const auto parts = parts_of(descriptor, f.output_dtype, f.quantized);
    return parts_workspace(f.shape, f.quantized, planq::parts_workspace(parts, device));
  }
  static std::size_t prepared_workspace(const Descriptor& descriptor, const State& state) {
    const Fields& f = descriptor.as<Fields>();
    return parts_workspace(f.shape, f.quantized, state.owned<Parts>().workspace(descriptor));
  }
  static Status prepare(const Descriptor& descriptor, const Device& device, State& state) {
    const Fields& f = descriptor.as<Fields>();
    return prepare_parts(descriptor, device, f.output_dtype, f.quantized, state);
  }
  static Status bind(const Call& call, Bound& bound) {
    const Fields& f = call.fields<Fields>();
    return bind_parts(call, f.shape, f.quantized, bound);
  }

  static constexpr Kernel kernel(std::string_view op) {
    Kernel kernel = quantized_kernel<kInputType, kBackend>(op, "parts", rejects, prepare, bind);
    kernel.rank = 100;
    kernel.workspace = kernel.largest_workspace = workspace;
    kernel.prepared_workspace = prepared_workspace;
    return kernel;
  }
};

template <class Fields, Backend kBackend, DType... kInputTypes>
constexpr std::array<Kernel, sizeof...(kInputTypes)> quantized_parts(std::string_view op) {
  return {QuantizedParts<Fields, kInputTypes, kBackend>::kernel(op)...};
}

}  // namespace planq::affine
