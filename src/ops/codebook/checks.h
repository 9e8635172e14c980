// Checks that the descriptors of several codebook operators share.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/checks.h"
#include "ops/codebook/vocabulary.h"

namespace planq::checks {

// Fills entries: as many as the codes can tell apart. Checks that codebook and codes go together.
Fault codebook(std::string_view codes_field, DType codes, Codebook codebook, std::int64_t& entries);
Fault block_size(std::string_view field, std::int64_t size);
// 0: there are no nested statistics.
Fault nested_block_size(std::int64_t size);
// RATIO is no way to find a place in a codebook.
Fault codebook_quotient(Quotient quotient);
// Fills absmax_dtype: float64 for float64 outputs, which may have float32 as well.
Fault absmax_dtype(DType output, DType& absmax);

// What both ways to make codes by a codebook ask.
template <class Fields>
Fault codebook_codes(Fields& f) {
  if (Fault fault = shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = dtype("input_dtype", f.input_dtype, kFloats); !fault.ok()) return fault;
  if (Fault fault = codebook("output_dtype", f.output_dtype, f.codebook, f.entries); !fault.ok())
    return fault;
  if (Fault fault = codebook_quotient(f.quotient); !fault.ok()) return fault;
  return rounding(f.rounding);
}

// What both ways back ask.
template <class Fields>
Fault codebook_values(Fields& f) {
  if (Fault fault = shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = codebook("input_dtype", f.input_dtype, f.codebook, f.entries); !fault.ok())
    return fault;
  if (Fault fault = dtype("output_dtype", f.output_dtype, kFloats); !fault.ok()) return fault;
  return absmax_dtype(f.output_dtype, f.absmax_dtype);
}

}  // namespace planq::checks
