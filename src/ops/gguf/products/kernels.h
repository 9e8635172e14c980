// Entries of registries for operators that multiply with blocks. Such an operator's fields have
// `input()`, input_dtype and output_dtype; its operands input and input_scale are called so.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/parts.h"
#include "core/rejects.h"
#include "core/sku.h"
#include "ops/linear/gemm.h"

namespace planq::gguf {

constexpr Guarantee guarantee_of_products(Required<std::string_view> basis) {
  return {.determinism = Determinism::BitExact,
          .math = MathPrecision::Int32,
          .accumulator = DType::Float32,
          .rounding = Rounding::NearestEven,
          .max_ulp = 0,
          .error_bound = kNoErrorBound,
          .batch_invariant = true,
          .basis = basis};
}

// Of kernels that multiply codes.
inline constexpr Guarantee kGuaranteeOfSums = guarantee_of_products(std::string_view(
    "exact integer sums of 16 or 32 products; a chain of fused multiply-adds for every 256 terms, "
    "and a chain of sums over these, in one order"));

template <Backend kBackend>
inline constexpr ArchRange kArchitectures =
    kBackend == Backend::Host ? ArchRange{} : ArchRange{80, kLastArch};

// --- Kernels of codes ----------------------------------------------------------------------------

template <class Fields, DType kOutputType>
Reason rejects_but_codes(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", DType::Int8, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "output_dtype", kOutputType, f.output_dtype);
}

// A kernel of all block types that writes one type. The rest is the operator's.
template <class Fields, DType kOutputType, Backend kBackend>
constexpr Kernel kernel_of_codes(std::string_view op, std::string_view body,
                                 decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind,
                                 decltype(Kernel::workspace) workspace) {
  return {.op = op,
          .body = body,
          .dtypes = kDTypes<DType::Int8, kOutputType>,
          .revision = 1,
          .backend = kBackend,
          .arch = kArchitectures<kBackend>,
          .rank = 0,
          .guarantee = kGuaranteeOfSums,
          .rejects = rejects_but_codes<Fields, kOutputType>,
          .workspace = workspace,
          .prepare = prepare,
          .bind = bind};
}

// --- Kernels of floats ---------------------------------------------------------------------------

// They are made of two parts: dynamic_range_quantize into int8, with a scale for every kGroup
// codes, and the same operator with these codes.
Reason rejects_of_parts(const Descriptor& descriptor, const linear::OperandField& input,
                        const Device& device);
std::size_t workspace_of_parts(const Descriptor& descriptor, const linear::OperandField& input,
                               const Device& device);
std::size_t prepared_workspace_of_parts(const Descriptor& descriptor,
                                        const linear::OperandField& input, const State& state);
Status prepare_parts(const Descriptor& descriptor, const linear::OperandField& input,
                     const Device& device, State& state);
Status bind_parts(const Call& call, const linear::OperandField& input, Bound& bound);

template <class Fields, Backend kBackend>
constexpr Kernel kernel_of_parts(std::string_view op, const Guarantee& guarantee) {
  const auto workspace = [](const Descriptor& descriptor, const Device& device) {
    return workspace_of_parts(descriptor, descriptor.as<Fields>().input(), device);
  };
  return {
      .op = op,
      .body = "parts",
      .revision = 1,
      .backend = kBackend,
      .arch = kArchitectures<kBackend>,
      .rank = 0,
      .guarantee = guarantee,
      .rejects =
          [](const Descriptor& descriptor, const Device& device) {
            return rejects_of_parts(descriptor, descriptor.as<Fields>().input(), device);
          },
      .workspace = workspace,
      .prepare =
          [](const Descriptor& descriptor, const Device& device, State& state) {
            return prepare_parts(descriptor, descriptor.as<Fields>().input(), device, state);
          },
      .bind = [](const Call& call,
                 Bound& bound) { return bind_parts(call, call.fields<Fields>().input(), bound); },
      .largest_workspace = workspace,
      .prepared_workspace =
          [](const Descriptor& descriptor, const State& state) {
            return prepared_workspace_of_parts(descriptor, descriptor.as<Fields>().input(), state);
          }};
}

// The same with a bind that does some calls without the parts, and what it prepares for these.
constexpr Kernel with_short_cut(Kernel kernel, decltype(Kernel::prepare) prepare,
                                decltype(Kernel::bind) bind) {
  kernel.prepare = prepare;
  kernel.bind = bind;
  return kernel;
}

}  // namespace planq::gguf
