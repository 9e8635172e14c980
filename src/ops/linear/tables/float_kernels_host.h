// The host kernels of operators with floating sums: one for each accumulation and pair of input and
// output type. `Layer` is the operator's: see tables/float_kernels.h.
#pragma once

#include "core/sku.h"
#include "host/bind.h"
#include "ops/linear/host/gemm.h"
#include "ops/linear/tables/float_kernels.h"

namespace planq::host {

template <class Layer>
Status compute_floats(const Call& call, const Stream& stream) {
  const Accumulation accumulation = call.fields<typename Layer::Fields>().accumulation;
  if constexpr (linear::kHasCodes<Layer>) {
    const auto codes = Layer::codes_of(call);
    multiply_floats(Layer::gemm_of(call, codes), accumulation, stream.threads);
  } else {
    multiply_floats(Layer::gemm_of(call), accumulation, stream.threads);
  }
  return Status::success();
}

template <class Layer, Accumulation kAccumulation, DType kIn, DType kOut>
Reason rejects_floats(const Descriptor& descriptor, const Device&) {
  const auto& f = descriptor.as<typename Layer::Fields>();
  Reason reason = linear::rejects_input<Layer, kIn>(descriptor);
  if (reason.accepted()) reason = expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype);
  if (!reason.accepted()) return reason;
  return linear::rejects_accumulation<Layer, kAccumulation>(descriptor);
}

template <class Layer, Accumulation kAccumulation, DType kIn, DType kOut>
constexpr Kernel float_kernel() {
  return {.op = Layer::kName,
          .arithmetic = name_of(kAccumulation),
          .body = "tiles",
          .dtypes = kDTypes<kIn, kOut>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = linear::kFloatGuarantee<kAccumulation, kIn>,
          .rejects = rejects_floats<Layer, kAccumulation, kIn, kOut>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = bind<compute_floats<Layer>>};
}

// The kernels of an accumulation, for some types of the input.
template <class Layer, Accumulation kAccumulation, DType... kIn>
constexpr auto float_kernels() {
  return joined(
      std::array<Kernel, 3>{float_kernel<Layer, kAccumulation, kIn, DType::Float16>(),
                            float_kernel<Layer, kAccumulation, kIn, DType::BFloat16>(),
                            float_kernel<Layer, kAccumulation, kIn, DType::Float32>()}...);
}

// The kernels of an operator with weights that are codes.
template <class Layer>
constexpr auto weight_only_kernels() {
  return joined(
      float_kernels<Layer, Accumulation::GroupsSm90, DType::Float16, DType::BFloat16>(),
      float_kernels<Layer, Accumulation::TensorSm90, DType::Float16, DType::BFloat16>(),
      float_kernels<Layer, Accumulation::Lanes, DType::Float16, DType::BFloat16, DType::Float32>());
}

}  // namespace planq::host
