// dynamic_range_quantize on the host: the numeric reference, and a real default. A kernel for each
// scope, input type and output type; what they do is in
// affine/segments/host/encode.h.

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/rejects.h"
#include "core/sku.h"
#include "host/bind.h"
#include "math/formats.h"
#include "ops/affine/dynamic_range_quantize/desc.h"
#include "ops/affine/segments/host/encode.h"

namespace planq::dynamic_range_quantize {
namespace {

using math::Compute;
using math::Stored;

template <class T>
Status prepare(const Descriptor& descriptor, const Device&, State& state) {
  state.emplace<host::SegmentEncoding<T>>() =
      host::segment_encoding<T>(spec_of<Compute<T>>(descriptor.as<Fields>()));
  return Status::success();
}

template <class T>
Status compute(const Call& call, const Stream& stream) {
  const Fields fields = with_groups(call.fields<Fields>());
  const Operands& operands = call.operands;
  host::encode_segments(
      call.state.as<host::SegmentEncoding<T>>(), fields.shape, fields.scope, fields.nibble_order,
      {operands[kInput], operands[kOutput], operands[kScale], operands[kZeroPoint]}, stream);
  return Status::success();
}

template <ScopeKind kScope, DType kInput, DType kOutput>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kInput, f.input_dtype);
  if (reason.accepted())
    reason = expect(ReasonKind::DType, "output_dtype", kOutput, f.output_dtype);
  if (reason.accepted()) reason = expect(ReasonKind::Scope, "scope", kScope, f.scope.kind);
  return reason.accepted() ? rejects_formats(f) : reason;
}

template <ScopeKind kScope, DType kInput, DType kOutput>
constexpr Kernel make_kernel() {
  using C = Compute<Stored<kInput>>;
  constexpr bool kDouble = std::is_same_v<C, double>;
  return {
      .op = "dynamic_range_quantize",
      .variant = name_of(kScope),
      .body = "rows",
      .dtypes = kDTypes<kInput, kOutput>,
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kDouble ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = kDouble ? DType::Float64 : DType::Float32,
                    .rounding = Rounding::NearestEven,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = std::string_view("exact integer maximum of magnitudes; IEEE division; "
                                              "round to nearest even; no reassociation")},
      .rejects = rejects<kScope, kInput, kOutput>,
      .workspace = no_workspace,
      .prepare = prepare<Stored<kInput>>,
      .bind = host::bind<compute<Stored<kInput>>>,
  };
}

// One kernel per scope, input type and output type: the product of these three lists.
constexpr ScopeKind kScopes[] = {ScopeKind::Tensor, ScopeKind::Channel, ScopeKind::Token,
                                 ScopeKind::Group, ScopeKind::Block};
constexpr DType kInputs[] = {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64};
constexpr DType kOutputs[] = {DType::Int8,  DType::UInt8,        DType::Int4,
                              DType::UInt4, DType::Float8E4M3FN, DType::Float8E5M2};

template <std::size_t... kIndex>
constexpr std::array<Kernel, sizeof...(kIndex)> table(std::index_sequence<kIndex...>) {
  constexpr std::size_t kOuts = std::size(kOutputs), kIns = std::size(kInputs);
  return {make_kernel<kScopes[kIndex / kOuts / kIns], kInputs[kIndex / kOuts % kIns],
                      kOutputs[kIndex % kOuts]>()...};
}

constexpr auto kKernels = table(
    std::make_index_sequence<std::size(kScopes) * std::size(kInputs) * std::size(kOutputs)>{});

}  // namespace

}  // namespace planq::dynamic_range_quantize

PLANQ_KERNELS(dynamic_range_quantize, host, kKernels);
