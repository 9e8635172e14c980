// Checks that the descriptors of several codebook operators share.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/checks.h"
#include "ops/codebook/vocabulary.h"

namespace planq::checks {

// Sets the default of `entries`: all that the codes can name. Checks that the codebook allows the
// type of codes and the number of entries.
Fault codebook(std::string_view codes_field, DType codes, Codebook codebook, std::int64_t& entries);
Fault block_size(std::string_view field, std::int64_t size);
// Accepts 0, which means that there are no nested statistics.
Fault nested_block_size(std::int64_t size);
// Refuses RATIO, which needs a q_max.
Fault codebook_quotient(Quotient quotient);
// Sets the default of absmax_dtype: float64 for float64 outputs, else float32. Float64 outputs may
// also have float32.
Fault absmax_dtype(DType output, DType& absmax);

// The checks of both operators that make codes by a codebook.
template <class Fields>
Fault codebook_codes(Fields& f) {
  if (Fault fault = shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = dtype("input_dtype", f.input_dtype, kFloats); !fault.ok()) return fault;
  if (Fault fault = codebook("output_dtype", f.output_dtype, f.codebook, f.entries); !fault.ok())
    return fault;
  if (Fault fault = codebook_quotient(f.quotient); !fault.ok()) return fault;
  return rounding(f.rounding);
}

// The checks of both operators that decode such codes.
template <class Fields>
Fault codebook_values(Fields& f) {
  if (Fault fault = shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = codebook("input_dtype", f.input_dtype, f.codebook, f.entries); !fault.ok())
    return fault;
  if (Fault fault = dtype("output_dtype", f.output_dtype, kFloats); !fault.ok()) return fault;
  return absmax_dtype(f.output_dtype, f.absmax_dtype);
}

}  // namespace planq::checks
