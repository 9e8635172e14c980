// From a floating gemm to the kernels of sm_90a: how element types and scales choose the kernel.
#pragma once

#include "ops/linear/simt/launch.h"
#include "ops/linear/sm90/heuristics.h"
#include "ops/linear/sm90/operands.cuh"
#include "ops/linear/sm90/slices.cuh"

namespace planq::linear::sm90 {

inline Scales scales_of(const Gemm& gemm) {
  if (!gemm.epilogue.weight_scale) return Scales::None;
  return gemm.joins_by_scales ? Scales::OfBlocks : Scales::OfRowsAndColumns;
}

namespace detail {

template <class A, class B, Scales kFirst, Scales kSecond, class Visit>
Status visit_scales(Scales scales, const Visit& visit) {
  return scales == kFirst ? visit.template operator()<A, B, kFirst>()
                          : visit.template operator()<A, B, kSecond>();
}
template <class A, class Visit>
Status visit_numbers(Scales scales, const Visit& visit) {
  return visit_scales<A, A, Scales::None, Scales::OfRowsAndColumns>(scales, visit);
}
template <class A, class Visit>
Status visit_weights(DType weight, Scales scales, const Visit& visit) {
  constexpr Scales kRows = Scales::OfRowsAndColumns, kBlocks = Scales::OfBlocks;
  return weight == DType::Float8E4M3FN ? visit_scales<A, cuda::E4M3, kRows, kBlocks>(scales, visit)
                                       : visit_scales<A, cuda::E5M2, kRows, kBlocks>(scales, visit);
}

}  // namespace detail

// Calls visit<type of the input, type of the weight, scales>() for floats of 8 bits.
template <class Visit>
Status visit_float8s(DType input, DType weight, Scales scales, const Visit& visit) {
  return input == DType::Float8E4M3FN ? detail::visit_weights<cuda::E4M3>(weight, scales, visit)
                                      : detail::visit_weights<cuda::E5M2>(weight, scales, visit);
}
// The same for all types.
template <class Visit>
Status visit_types(DType input, DType weight, Scales scales, const Visit& visit) {
  switch (input) {
    case DType::Float16:
      return detail::visit_numbers<math::Half>(scales, visit);
    case DType::BFloat16:
      return detail::visit_numbers<math::Bfloat16>(scales, visit);
    default:
      return visit_float8s(input, weight, scales, visit);
  }
}
// The same, for both kinds of scales that a gemm of these types may have.
template <class Visit>
Status visit_every_scale(DType input, DType weight, const Visit& visit) {
  PLANQ_TRY(visit_types(input, weight, is_fp8(input) ? Scales::OfBlocks : Scales::None, visit));
  return visit_types(input, weight, Scales::OfRowsAndColumns, visit);
}

// Calls visit<type of the input, type of the weight>() for 16-bit numbers of which one operand or
// both are transposed.
template <class Visit>
Status visit_transposed(DType values, bool input, bool weight, const Visit& visit) {
  const auto visit_type = [&]<class T>() {
    using Transposed = cuda::Transposed<T>;
    if (!input) return visit.template operator()<T, Transposed>();
    return weight ? visit.template operator()<Transposed, Transposed>()
                  : visit.template operator()<Transposed, T>();
  };
  return values == DType::Float16 ? visit_type.template operator()<math::Half>()
                                  : visit_type.template operator()<math::Bfloat16>();
}

// Calls visit<type of the input, type of the weight, scales>() for the operands of a gemm.
template <class Visit>
Status visit_operands(const Gemm& gemm, const Visit& visit) {
  const DType input = gemm.input.dtype;
  const bool transposed[] = {gemm.input.transposed(), gemm.weight.transposed()};
  if (!transposed[0] && !transposed[1])
    return visit_types(input, gemm.weight.dtype, scales_of(gemm), visit);
  return visit_transposed(input, transposed[0], transposed[1], [&]<class A, class B>() {
    return visit.template operator()<A, B, Scales::None>();
  });
}

// k blocks of whole slices. TMA fills k blocks beyond k with 0, which changes no sum.
inline int slice_blocks(const Gemm& gemm) {
  const int each = static_cast<int>(
      math::kTensorCoreSlice * linear::detail::element_bytes(gemm.input.dtype) / cuda::kBoxBytes);
  return (k_blocks_of(gemm) + each - 1) / each * each;
}

}  // namespace planq::linear::sm90

namespace planq::linear {

// Kernels for few tokens (sm90/float_few_rows_sm90a.cu). `choice` must have few_rows. Sets
// `launched` to false, and launches nothing, if TMA cannot read an operand.
Status preload_float_few_rows(DType input, DType weight);
Status preload_float_few_rows_transposed(DType values, bool input, bool weight);
Status launch_float_few_rows(const Gemm& gemm, const sm90::FloatChoice& choice, Bound& bound,
                             bool& launched);

}  // namespace planq::linear
