// What operators of single elements take and promise, and how they are registered.
#pragma once

#include <string_view>

#include "core/registry.h"
#include "core/rejects.h"

namespace planq::elementwise {

inline constexpr DType kTypes[] = {DType::Float16, DType::BFloat16, DType::Float32};

inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::F32,
    .accumulator = DType::Float32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis =
        "each element alone, by IEEE operations of float32 in a fixed order; one rounding to "
        "the output's type"};

template <class Fields, DType kInputType, DType kOutputType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", kInputType, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "output_dtype", kOutputType, f.output_dtype);
}

// A kernel of one pair of types.
template <class Fields, DType kInputType, DType kOutputType, Backend kBackend>
constexpr Kernel kernel(std::string_view op, decltype(Kernel::prepare) prepare,
                        decltype(Kernel::bind) bind) {
  return {.op = op,
          .body = "elements",
          .dtypes = kDTypes<kInputType, kOutputType>,
          .revision = 1,
          .backend = kBackend,
          .arch = kBackend == Backend::Host ? ArchRange{} : ArchRange{80, kLastArch},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<Fields, kInputType, kOutputType>,
          .workspace = no_workspace,
          .prepare = prepare,
          .bind = bind};
}

}  // namespace planq::elementwise
