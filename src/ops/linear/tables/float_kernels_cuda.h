// The CUDA kernels of operators with floating sums. For any GPU there is one for each accumulation
// and type of the input, and one on its tensor cores; for sm_90a, those of TensorSm90. `Layer` is
// the operator's: see tables/float_kernels.h.
#pragma once

#include <cstddef>

#include "core/sku.h"
#include "ops/linear/simt/launch.h"
#include "ops/linear/sm90/groups_launch.h"
#include "ops/linear/tables/float_kernels.h"

namespace planq::cuda {

// ---- any GPU ---------------------------------------------------------------------------------

template <class Layer, Accumulation kAccumulation, DType kIn>
Reason rejects_floats(const Descriptor& descriptor, const Device&) {
  const Reason reason = linear::rejects_input<Layer, kIn>(descriptor);
  return reason.accepted() ? linear::rejects_accumulation<Layer, kAccumulation>(descriptor)
                           : reason;
}

template <class Layer, DType kIn>
Status prepare_floats(const Descriptor& descriptor, const Device&, State&) {
  if constexpr (linear::kHasCodes<Layer>)
    return linear::preload_weight_only(descriptor.as<typename Layer::Fields>().weight_dtype);
  else
    return bits_of(kIn) == 8 ? linear::preload_float8s() : linear::preload_floats();
}

template <class Layer>
Status bind_floats(const Call& call, Bound& bound) {
  const Accumulation accumulation = call.fields<typename Layer::Fields>().accumulation;
  if constexpr (linear::kHasCodes<Layer>) {
    const auto codes = Layer::codes_of(call);
    return linear::launch_weight_only(Layer::gemm_of(call, codes), accumulation, bound);
  } else {
    return linear::launch_floats(Layer::gemm_of(call), accumulation, bound);
  }
}

template <class Layer, Accumulation kAccumulation, DType kIn>
constexpr Kernel float_kernel() {
  return {.op = Layer::kName,
          .arithmetic = name_of(kAccumulation),
          .body = "outputs",
          .dtypes = kDTypes<kIn>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 100,
          .guarantee = linear::kFloatGuarantee<kAccumulation, kIn>,
          .rejects = rejects_floats<Layer, kAccumulation, kIn>,
          .workspace = no_workspace,
          .prepare = prepare_floats<Layer, kIn>,
          .bind = bind_floats<Layer>};
}

// The kernels of an accumulation, for some types of the input.
template <class Layer, Accumulation kAccumulation, DType... kIn>
constexpr std::array<Kernel, sizeof...(kIn)> float_kernels() {
  return {float_kernel<Layer, kAccumulation, kIn>()...};
}

// ---- tensor cores of any GPU -----------------------------------------------------------------

template <class Layer, Accumulation kAccumulation, DType kIn>
Reason rejects_terms(const Descriptor& descriptor, const Device& device) {
  const Reason reason = rejects_floats<Layer, kAccumulation, kIn>(descriptor, device);
  const std::int64_t terms = linear::terms_of<Layer>(descriptor);
  if (!reason.accepted() || terms <= linear::kMostSm80Terms) return reason;
  return Reason::refuse(ReasonKind::Shape, "has up to ", linear::kMostSm80Terms, " terms, not ",
                        terms);
}

template <class Layer, DType kIn>
Reason rejects_mma(const Descriptor& descriptor, const Device& device) {
  const Reason reason = rejects_terms<Layer, Accumulation::TensorSm90, kIn>(descriptor, device);
  if (!reason.accepted()) return reason;
  if (linear::kHasCodes<Layer> && linear::terms_of<Layer>(descriptor) % 8 != 0)
    return Reason::refuse(ReasonKind::Shape, "reads rows of whole vectors of 8 numbers");
  return Reason::accept();
}

template <class Layer>
std::size_t panel_workspace(const Descriptor& descriptor, const Device& device) {
  if constexpr (linear::kHasCodes<Layer>) {
    const Shape& weight = descriptor.as<typename Layer::Fields>().weight_shape;
    return linear::panel_workspace(weight[0], weight[1], device);
  } else {
    return 0;
  }
}

template <class Layer, DType kIn>
Status prepare_mma(const Descriptor&, const Device&, State&) {
  if constexpr (linear::kHasCodes<Layer>)
    return linear::preload_weight_only_sm80(kIn);
  else
    return linear::preload_float_sm80(kIn);
}

template <class Layer>
Status bind_mma(const Call& call, Bound& bound) {
  if constexpr (linear::kHasCodes<Layer>) {
    const auto codes = Layer::codes_of(call);
    return linear::launch_weight_only_sm80(Layer::gemm_of(call, codes), call, bound);
  } else {
    return linear::launch_float_sm80(Layer::gemm_of(call), call.device, bound);
  }
}

// For callers who do not ask for the same bits on every GPU. It ranks before the kernel that has
// them, which computes one output at a time.
template <class Layer, DType kIn>
constexpr Kernel mma_kernel() {
  return {.op = Layer::kName,
          .arithmetic = "mma",
          .body = "mma",
          .dtypes = kDTypes<kIn>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 95,
          .guarantee = linear::kMmaGuarantee<Layer, kIn>,
          .rejects = rejects_mma<Layer, kIn>,
          .workspace = panel_workspace<Layer>,
          .prepare = prepare_mma<Layer, kIn>,
          .bind = bind_mma<Layer>};
}
template <class Layer, DType... kIn>
constexpr std::array<Kernel, sizeof...(kIn)> mma_kernels() {
  return {mma_kernel<Layer, kIn>()...};
}

// The same where its bits are those of the model: mma.sync adds as wgmma does on sm_90.
template <class Layer, DType kIn>
constexpr Kernel mma_sm90_kernel() {
  Kernel kernel = mma_kernel<Layer, kIn>();
  kernel.arithmetic = name_of(Accumulation::TensorSm90);
  kernel.arch = {90, 90};
  kernel.rank = 60;
  kernel.guarantee = linear::kFloatGuarantee<Accumulation::TensorSm90, kIn>;
  return kernel;
}
template <class Layer, DType... kIn>
constexpr std::array<Kernel, sizeof...(kIn)> mma_sm90_kernels() {
  return {mma_sm90_kernel<Layer, kIn>()...};
}

// The same two in the order of GroupsSm90.
template <DType kIn>
Status prepare_groups(const Descriptor&, const Device&, State&) {
  return linear::preload_groups_sm80(kIn);
}
template <class Layer>
Status bind_groups(const Call& call, Bound& bound) {
  const auto codes = Layer::codes_of(call);
  return linear::launch_groups_sm80(Layer::gemm_of(call, codes), call, bound);
}
template <class Layer, DType kIn>
constexpr Kernel groups_mma_kernel() {
  Kernel kernel = mma_kernel<Layer, kIn>();
  kernel.arithmetic = "groups_mma";
  kernel.guarantee = linear::kMmaGuarantee<Layer, kIn, linear::kGroupsMma>;
  kernel.rejects = rejects_terms<Layer, Accumulation::GroupsSm90, kIn>;
  kernel.prepare = prepare_groups<kIn>;
  kernel.bind = bind_groups<Layer>;
  return kernel;
}
template <class Layer, DType kIn>
constexpr Kernel groups_sm90_kernel() {
  Kernel kernel = groups_mma_kernel<Layer, kIn>();
  kernel.arithmetic = name_of(Accumulation::GroupsSm90);
  kernel.arch = {90, 90};
  kernel.rank = 60;
  kernel.guarantee = linear::kFloatGuarantee<Accumulation::GroupsSm90, kIn>;
  return kernel;
}
template <class Layer, DType... kIn>
constexpr auto groups_kernels() {
  return std::array{groups_sm90_kernel<Layer, kIn>()..., groups_mma_kernel<Layer, kIn>()...};
}

// The kernels of an operator with weights that are codes.
template <class Layer>
constexpr auto weight_only_kernels() {
  return joined(
      float_kernels<Layer, Accumulation::GroupsSm90, DType::Float16, DType::BFloat16>(),
      groups_kernels<Layer, DType::Float16, DType::BFloat16>(),
      float_kernels<Layer, Accumulation::TensorSm90, DType::Float16, DType::BFloat16>(),
      float_kernels<Layer, Accumulation::Lanes, DType::Float16, DType::BFloat16, DType::Float32>(),
      mma_kernels<Layer, DType::Float16, DType::BFloat16>());
}

// ---- sm_90a ----------------------------------------------------------------------------------

template <class Layer, DType kIn>
Reason rejects_wgmma(const Descriptor& descriptor, const Device&) {
  const auto& f = descriptor.as<typename Layer::Fields>();
  Reason reason = linear::rejects_input<Layer, kIn>(descriptor);
  if (reason.accepted())
    reason = linear::rejects_accumulation<Layer, Accumulation::TensorSm90>(descriptor);
  if (!reason.accepted()) return reason;
  // Rows as they are stored: of a transposed operand, along m or n.
  const auto vectors = [](const linear::OperandField& operand) {
    return operand.shape.last() % (128 / bits_of(kIn)) == 0;
  };
  if (!vectors(f.input()) || !vectors(f.weight()))
    return Reason::refuse(ReasonKind::Shape, bits_of(kIn) == 8
                                                 ? "reads rows of whole vectors of 16 codes"
                                                 : "reads rows of whole vectors of 8 numbers");
  return Reason::accept();
}

template <class Layer, DType kIn>
Status prepare_wgmma(const Descriptor& descriptor, const Device&, State&) {
  const auto& f = descriptor.as<typename Layer::Fields>();
  if constexpr (linear::kHasCodes<Layer>)
    return linear::preload_weight_only_sm90(kIn);
  else if (f.input().transposed || f.weight().transposed)
    return linear::preload_float_transposed(kIn, f.input().transposed, f.weight().transposed);
  else
    return linear::preload_float_sm90(kIn, f.weight_dtype);
}

// Operands that it cannot read go to the kernel for any GPU, which has the same bits.
template <class Layer, linear::sm90::Body kBody>
Status bind_wgmma(const Call& call, Bound& bound) {
  if constexpr (linear::kHasCodes<Layer>) {
    const auto codes = Layer::codes_of(call);
    return linear::launch_weight_only_sm90(Layer::gemm_of(call, codes), call, bound);
  } else {
    return linear::launch_float_sm90(Layer::gemm_of(call), kBody, call.device, bound);
  }
}

template <class Layer, DType kIn, linear::sm90::Body kBody>
constexpr Kernel wgmma_kernel() {
  return {.op = Layer::kName,
          .arithmetic = name_of(Accumulation::TensorSm90),
          .body = name_of(kBody),
          .dtypes = kDTypes<kIn>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {90, 90},
          .rank = rank_of(kBody),
          .guarantee = linear::kFloatGuarantee<Accumulation::TensorSm90, kIn>,
          .rejects = rejects_wgmma<Layer, kIn>,
          .workspace = panel_workspace<Layer>,
          .prepare = prepare_wgmma<Layer, kIn>,
          .bind = bind_wgmma<Layer, kBody>};
}

// Of weights that are codes, in the order of GroupsSm90.
template <class Layer, DType kIn>
Reason rejects_groups(const Descriptor& descriptor, const Device&) {
  const Reason reason = linear::rejects_input<Layer, kIn>(descriptor);
  return reason.accepted()
             ? linear::rejects_accumulation<Layer, Accumulation::GroupsSm90>(descriptor)
             : reason;
}
template <class Layer>
std::size_t groups_workspace(const Descriptor& descriptor, const Device& device) {
  const auto& f = descriptor.as<typename Layer::Fields>();
  return linear::groups_workspace_sm90(f.weight_shape[0], f.weight_shape[1], Layer::kind_of(f),
                                       device);
}
template <class Layer>
Status prepare_groups(const Descriptor& descriptor, const Device&, State&) {
  return linear::preload_groups_sm90(Layer::kind_of(descriptor.as<typename Layer::Fields>()));
}
template <class Layer, linear::sm90::Body kBody>
Status bind_groups(const Call& call, Bound& bound) {
  const auto codes = Layer::codes_of(call);
  return linear::launch_groups_sm90(Layer::gemm_of(call, codes), kBody, call, bound);
}
template <class Layer, DType kIn, linear::sm90::Body kBody>
constexpr Kernel groups_kernel() {
  Kernel kernel = wgmma_kernel<Layer, kIn, kBody>();
  kernel.arithmetic = name_of(Accumulation::GroupsSm90);
  kernel.guarantee = linear::kFloatGuarantee<Accumulation::GroupsSm90, kIn>;
  kernel.rejects = rejects_groups<Layer, kIn>;
  kernel.workspace = groups_workspace<Layer>;
  kernel.prepare = prepare_groups<Layer>;
  kernel.bind = bind_groups<Layer, kBody>;
  return kernel;
}

// The bodies for a type of the input. Tall tiles, and few rows that are not aligned, are for 16-bit
// numbers. Weights that are codes have several bodies in the order of GroupsSm90 alone.
template <class Layer, DType kIn>
constexpr auto wgmma_bodies() {
  using linear::sm90::Body;
  constexpr Kernel fastest = wgmma_kernel<Layer, kIn, Body::Fastest>();
  if constexpr (linear::kHasCodes<Layer>)
    return std::array{fastest, groups_kernel<Layer, kIn, Body::Fastest>(),
                      groups_kernel<Layer, kIn, Body::Tiles>(),
                      groups_kernel<Layer, kIn, Body::MmaFewRows>(),
                      groups_kernel<Layer, kIn, Body::Panels>()};
  else if constexpr (bits_of(kIn) == 8)
    return std::array{fastest, wgmma_kernel<Layer, kIn, Body::Tiles>(),
                      wgmma_kernel<Layer, kIn, Body::FewRows>()};
  else
    return std::array{fastest, wgmma_kernel<Layer, kIn, Body::Tiles>(),
                      wgmma_kernel<Layer, kIn, Body::TallTiles>(),
                      wgmma_kernel<Layer, kIn, Body::FewRows>(),
                      wgmma_kernel<Layer, kIn, Body::MmaFewRows>()};
}
template <class Layer, DType... kIn>
constexpr auto wgmma_kernels() {
  return joined(wgmma_bodies<Layer, kIn>()...);
}

}  // namespace planq::cuda
