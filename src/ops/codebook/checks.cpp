#include "ops/codebook/checks.h"

#include <string>

#include "ops/codebook/codebook.h"

namespace planq::checks {

Fault codebook(std::string_view codes_field, DType codes, Codebook codebook,
               std::int64_t& entries) {
  constexpr DType kCodebookCodes[] = {DType::UInt8, DType::UInt4};
  if (Fault fault = dtype(codes_field, codes, kCodebookCodes); !fault.ok()) return fault;
  const std::int64_t largest = largest_entries(codes);
  const std::string name(name_of(codebook));
  const DType own = codebook == Codebook::Dynamic ? DType::UInt8 : DType::UInt4;
  if (codebook != Codebook::Given && codes != own)
    return {"codebook", name + " goes with " + std::string(codes_field) + " " +
                            std::string(name_of(own)) + ", got " + std::string(name_of(codes))};
  if (entries == 0) entries = largest;
  if (codebook != Codebook::Given && entries != largest)
    return {"entries",
            name + " has " + std::to_string(largest) + " values, got " + std::to_string(entries)};
  if (entries < 2 || entries > largest)
    return {"entries", "expected 2 to " + std::to_string(largest) + " values for " +
                           std::string(name_of(codes)) + ", got " + std::to_string(entries)};
  return {};
}

Fault block_size(std::string_view field, std::int64_t size) {
  if (size >= 1) return {};
  return {std::string(field), "expected at least 1, got " + std::to_string(size)};
}

Fault nested_block_size(std::int64_t size) {
  return size == 0 ? Fault{} : block_size("nested_block_size", size);
}

Fault codebook_quotient(Quotient quotient) {
  if (quotient != Quotient::Ratio) return {};
  return {"quotient",
          "RATIO is of q_max, which a codebook does not have; use RECIPROCAL or DIVIDE"};
}

Fault absmax_dtype(DType output, DType& absmax) {
  constexpr DType kAbsmax[] = {DType::Float32, DType::Float64};
  if (absmax == DType::Unset) absmax = compute_dtype(output);
  if (Fault fault = dtype("absmax_dtype", absmax, kAbsmax); !fault.ok()) return fault;
  if (absmax == DType::Float32 || output == DType::Float64) return {};
  return {"absmax_dtype",
          "float64 goes with output_dtype float64, got " + std::string(name_of(output))};
}

}  // namespace planq::checks
