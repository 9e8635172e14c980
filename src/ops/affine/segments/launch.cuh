// What all launches of a segment-by-segment quantization work from: what is quantized and how, the
// operands of a span, and which kernels are compiled for a spec.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/bound.h"
#include "core/scratch.h"
#include "cuda/launch.cuh"
#include "ops/affine/segments/encode.cuh"
#include "ops/affine/segments/layout.cuh"

namespace planq::affine {

// What is quantized, and how.
template <class C>
struct Quantization : SegmentedTensor {
  math::AffineSpec<C> spec;
  NibbleOrder order = NibbleOrder::LowFirst;
};

// The same for one span.
template <class In>
struct Launch {
  using C = Compute<In>;
  Quantization<C> tensor;
  std::int32_t multiprocessors, arch;
  QuantizeOperands operands;
  Workspace workspace;
  Bound& bound;

  const math::AffineSpec<C>& spec() const { return tensor.spec; }
  Geometry geometry() const { return geometry_of(tensor, operands); }
  // Launches that wait for the one before them need the hardware for it.
  cuda::Grid grid(int64_t blocks, dim3 threads, bool dependent = false) const {
    return {blocks, threads, 1, dependent && has_dependent_launches(arch)};
  }
  template <class Args>
  Status run(void (*kernel)(Args), const cuda::Grid& grid, const Args& args) const {
    return grid.blocks == 0 ? Status::success() : cuda::launch(kernel, grid, args, bound);
  }
  // The members that all argument structs share.
  template <class Args>
  Args args() const {
    Args args{};
    args.input = static_cast<const In*>(operands[kInput]->data);
    args.output = static_cast<std::uint8_t*>(operands[kOutput]->data);
    args.scale = operands[kScale]->data;
    args.zero_point = static_cast<std::int32_t*>(operands[kZeroPoint]->data);
    args.spec = spec();
    args.order = tensor.order;
    return args;
  }
};

template <class... Args>
Status preload_all(void (*... kernels)(Args)) {
  Status status = Status::success();
  (void)((status = cuda::preload(kernels), status.ok()) && ...);
  return status;
}

// --- Recipes -----------------------------------------------------------------------------------

template <class C>
bool stores_plainly(const math::AffineSpec<C>& spec) {
  return spec.scale_dtype == (sizeof(C) == 8 ? DType::Float64 : DType::Float32);
}

// Whether storing a scale changes nothing; q_max < 1 may have to bound it.
template <class C>
bool stores_exactly(const math::AffineSpec<C>& spec) {
  return (spec.scale_dtype == DType::Float64 || stores_plainly(spec)) && spec.q_max >= 1;
}

// Whether codes have to be compared with q_min and q_max: always where the scale is not range /
// q_max. A symmetric quotient ends at q_max, give or take a rounding that no code sees, as long as
// the scale is the one that was computed. An asymmetric one saturates where the bounds are those of
// the type.
template <class C>
bool needs_clamp(const math::AffineSpec<C>& spec) {
  if (spec.convention != Convention::Planq) return true;
  if (spec.mode == Mode::Symmetric) return spec.q_min > -spec.q_max || !stores_exactly(spec);
  return spec.steps != static_cast<C>((1 << bits_of(spec.output_dtype)) - 1);
}

template <class C>
Variant variant_of(const math::AffineSpec<C>& spec) {
  const bool fast_is_exact = spec.quotient == Quotient::Divide && stores_plainly(spec) &&
                             stores_exactly(spec) && !needs_clamp(spec) &&
                             spec.output_dtype != DType::Float8E5M2;
  return fast_is_exact ? Variant::Specialized : Variant::Generic;
}

// What the kernels for regular segments take for granted: scales by planq's own rule, and float8
// codes that may be negative.
template <class C>
bool is_regular(const math::AffineSpec<C>& spec) {
  return spec.convention == Convention::Planq && (!is_fp8(spec.output_dtype) || spec.q_min < 0);
}

// Calls use(true_type) for the asymmetric mode; float8 codes have no zero point, so none are.
template <Codes kCodes, class C, class Use>
auto by_mode(const math::AffineSpec<C>& spec, const Use& use) {
  if constexpr (!is_float8(kCodes))
    if (spec.mode == Mode::Asymmetric) return use(std::true_type{});
  return use(std::false_type{});
}

// --- Instantiations ----------------------------------------------------------------------------

// Whether there are kernels for regular segments, and for regular rows. float8_e5m2, a rare choice
// for anything but gradients, has neither; float64, which no engine stores, has specialized ones
// for rows alone.
template <class In>
inline constexpr bool kIsWide = std::is_same_v<Compute<In>, double>;
template <class In, Codes kCodes>
inline constexpr bool kHasRegularRows = kCodes != Codes::E5M2;
template <class In, Codes kCodes>
inline constexpr bool kHasRegular = kHasRegularRows<In, kCodes> && !kIsWide<In>;
// Subwarps whose segments begin anywhere, and rows that do: codes of whole bytes.
template <class In, Codes kCodes>
inline constexpr bool kHasUnaligned = kHasRegular<In, kCodes> && kCodes != Codes::Nibble;
// Four-bit codes of a whole tensor are as rare as float8_e5m2.
template <class In, Codes kCodes>
inline constexpr bool kHasResident = kHasRegular<In, kCodes> && kCodes != Codes::Nibble;

// --- Alignment ---------------------------------------------------------------------------------

template <Codes kCodes, class In>
bool aligned_segments(const Launch<In>& launch, const Geometry& g) {
  return g.length % kPerVector<In> == 0 && g.tail.size % kPerVector<In> == 0 &&
         aligned<In>(launch.operands, g.starts, kWordBytes<In, kCodes>);
}

}  // namespace planq::affine
