// What the kernels of operators that are a gemm of integer codes guarantee, on both backends. The
// operator's desc.h describes itself to them as a struct Layer, with Fields, kName, gemm_of(call)
// and kHasScales: whether sums have an epilogue.
#pragma once

#include <string_view>

#include "core/registry.h"

namespace planq::linear {

template <class Layer>
inline constexpr Guarantee kIntGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::Int32,
    .accumulator = DType::Int32,
    .rounding = Layer::kHasScales ? Rounding::NearestEven : Rounding::None,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis =
        std::string_view(Layer::kHasScales ? "exact integer sums; IEEE operations in a fixed order"
                                           : "exact integer sums")};

}  // namespace planq::linear
