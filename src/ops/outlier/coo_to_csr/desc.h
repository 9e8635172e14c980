// coo_to_csr: where each row begins in a row-major list of entries. The list's columns and values
// are those of CSR as they are.
#pragma once

#include <string_view>

#include "core/operands.h"
#include "core/registry.h"

namespace planq::coo_to_csr {

struct Fields {
  Shape shape;  // of the matrix
  std::int64_t capacity = 0;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required(),
    PLANQ_FIELD(Fields, capacity).required(),
};

// Positions in Operands.
enum Operand : int { kRowIndex, kCount, kPointer };
inline constexpr auto kOperands =
    operands(kFields, {{"row_index", Role::Input, DType::Int32, "capacity"},
                       {"count", Role::Input, DType::Int64, 1},
                       {"pointer", Role::Output, DType::Int32, elements_of(leading("shape")) + 1}});

// Both backends promise the same.
inline constexpr Guarantee kGuarantee = {.determinism = Determinism::BitExact,
                                         .math = MathPrecision::None,
                                         .accumulator = DType::Int32,
                                         .rounding = Rounding::None,
                                         .max_ulp = 0,
                                         .error_bound = kNoErrorBound,
                                         .batch_invariant = true,
                                         .basis = "searches in ascending integers"};

inline Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }

}  // namespace planq::coo_to_csr
