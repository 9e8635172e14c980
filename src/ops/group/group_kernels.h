// The kernels of the group operators, for both backends. An operator's kernels of one backend are a
// struct with its Fields, kName, kBackend, kBasis, and for elements of type kElements prepare() and
// bind; of an operator that may have error feedback also with kFeedback, whether they are for that.
#pragma once

#include <string_view>

#include "core/registry.h"
#include "core/rejects.h"
#include "core/sku.h"
#include "ops/group/group.h"

namespace planq {

inline constexpr std::string_view kFeedbackVariant = "feedback";

inline Reason expect_feedback(bool own, bool asked) {
  if (own == asked) return Reason::accept();
  return Reason::refuse(ReasonKind::Feature, "computes with", own ? "" : "out", " error feedback");
}

template <class Op>
constexpr bool has_variants() {
  return requires { Op::kFeedback; };
}
template <class Op>
constexpr std::string_view group_variant() {
  if constexpr (has_variants<Op>()) return Op::kFeedback ? kFeedbackVariant : "";
  return "";
}

template <class Op, DType kIn, DType kOut>
Reason rejects_group(const Descriptor& descriptor, const Device&) {
  const auto& f = descriptor.as<typename Op::Fields>();
  if constexpr (has_variants<Op>()) {
    const Reason reason = expect_feedback(Op::kFeedback, has_feedback(f));
    if (!reason.accepted()) return reason;
  }
  const Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype);
}

inline std::size_t no_group_workspace(const Descriptor&, const Device&) { return 0; }

// kElements: the type of the elements, on whichever side of the codes they are.
template <class Op, DType kElements, DType kIn, DType kOut>
constexpr Kernel group_kernel() {
  return {
      .op = Op::kName,
      .variant = group_variant<Op>(),
      .body = "groups",
      .dtypes = kDTypes<kIn, kOut>,
      .revision = 1,
      .backend = Op::kBackend,
      .arch = Op::kBackend == Backend::Host ? ArchRange{} : ArchRange{80},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = MathPrecision::F32,
                    .accumulator = DType::Float32,
                    .rounding = Rounding::NearestEven,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = Op::kBasis},
      .rejects = rejects_group<Op, kIn, kOut>,
      .workspace = no_group_workspace,
      .prepare = Op::template prepare<kElements, is_four_bit(Op::kToCodes ? kOut : kIn)>,
      .bind = Op::template kBind<kElements, is_four_bit(Op::kToCodes ? kOut : kIn)>,
  };
}

template <class Op, DType kElements, DType kCodes>
constexpr Kernel group_kernel_by() {
  if constexpr (Op::kToCodes)
    return group_kernel<Op, kElements, kElements, kCodes>();
  else
    return group_kernel<Op, kElements, kCodes, kElements>();
}

// Of one type of elements, DeepSpeed's codes.
template <class Op, DType kElements>
constexpr std::array<Kernel, 2> group_code_kernels() {
  return {group_kernel_by<Op, kElements, DType::Int8>(),
          group_kernel_by<Op, kElements, DType::Int4>()};
}
// Of every type of elements.
template <class Op>
constexpr std::array<Kernel, 6> all_group_code_kernels() {
  return joined(group_code_kernels<Op, DType::Float16>(), group_code_kernels<Op, DType::BFloat16>(),
                group_code_kernels<Op, DType::Float32>());
}
// Of one, and those of INTx.
template <class Op, DType kElements>
constexpr std::array<Kernel, 4> group_kernels() {
  return joined(group_code_kernels<Op, kElements>(),
                std::array{group_kernel_by<Op, kElements, DType::UInt8>(),
                           group_kernel_by<Op, kElements, DType::UInt4>()});
}

}  // namespace planq
