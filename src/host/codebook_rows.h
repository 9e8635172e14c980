// The host rows of the codebook operators. An operator is a struct with its Fields, the names kName
// and kMethod of its SKUs, a sentence kBasis, workspace() and launch<T>() for elements of type T.
#pragma once

#include <array>
#include <string_view>

#include "core/rejects.h"
#include "core/sku.h"
#include "host/rows.h"

namespace planq::host {

template <class Op, DType kIn, DType kOut, Rounding kRounding>
struct CodebookSku {
  static constexpr std::array<std::string_view, 7> kParts = {
      Op::kName,
      "/host/",
      kRounding == Rounding::Stochastic ? "stochastic" : Op::kMethod,
      "/",
      short_name(kIn),
      "_",
      short_name(kOut)};
};

template <class Op, DType kIn, DType kOut, Rounding kRounding>
Reason rejects_codebook(const Descriptor& descriptor, const Device&) {
  const auto& f = descriptor.as<typename Op::Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (reason.accepted()) reason = expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype);
  if constexpr (requires { f.rounding; }) {
    if (reason.accepted()) return expect(ReasonKind::Feature, "rounding", kRounding, f.rounding);
  }
  return reason;
}

template <class Op, DType kElements, DType kIn, DType kOut,
          Rounding kRounding = Rounding::NearestEven>
constexpr Kernel codebook_row() {
  constexpr bool kWide = kElements == DType::Float64;
  return {
      .sku = JoinedText<CodebookSku<Op, kIn, kOut, kRounding>>::view(),
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = compute_dtype(kElements),
                    .rounding = kRounding,
                    .max_ulp = 0,
                    .batch_invariant = true,
                    .basis = Op::kBasis},
      .rejects = rejects_codebook<Op, kIn, kOut, kRounding>,
      .workspace = Op::workspace,
      .prepare = keep_fields<typename Op::Fields>,
      .launch = Op::template launch<Stored<kElements>>,
  };
}

template <class Op, Rounding kRounding>
constexpr std::array<Kernel, 8> encoding_rows_of() {
  return {codebook_row<Op, DType::Float16, DType::Float16, DType::UInt8, kRounding>(),
          codebook_row<Op, DType::Float16, DType::Float16, DType::UInt4, kRounding>(),
          codebook_row<Op, DType::BFloat16, DType::BFloat16, DType::UInt8, kRounding>(),
          codebook_row<Op, DType::BFloat16, DType::BFloat16, DType::UInt4, kRounding>(),
          codebook_row<Op, DType::Float32, DType::Float32, DType::UInt8, kRounding>(),
          codebook_row<Op, DType::Float32, DType::Float32, DType::UInt4, kRounding>(),
          codebook_row<Op, DType::Float64, DType::Float64, DType::UInt8, kRounding>(),
          codebook_row<Op, DType::Float64, DType::Float64, DType::UInt4, kRounding>()};
}

// From elements to codes, to the nearest and by draws.
template <class Op>
constexpr std::array<Kernel, 16> encoding_rows() {
  return joined(encoding_rows_of<Op, Rounding::NearestEven>(),
                encoding_rows_of<Op, Rounding::Stochastic>());
}

template <class Op, DType kIn>
constexpr std::array<Kernel, 4> decoding_rows_of() {
  return {codebook_row<Op, DType::Float16, kIn, DType::Float16>(),
          codebook_row<Op, DType::BFloat16, kIn, DType::BFloat16>(),
          codebook_row<Op, DType::Float32, kIn, DType::Float32>(),
          codebook_row<Op, DType::Float64, kIn, DType::Float64>()};
}

// From codes to elements.
template <class Op>
constexpr std::array<Kernel, 8> decoding_rows() {
  return joined(decoding_rows_of<Op, DType::UInt8>(), decoding_rows_of<Op, DType::UInt4>());
}

}  // namespace planq::host
