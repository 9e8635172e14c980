// The host kernels of the codebook operators; see codebook_kernels.h. A struct of kernels also has
// compute<T>() for elements of type T.
#pragma once

#include "host/bind.h"
#include "math/formats.h"
#include "ops/codebook/codebook_kernels.h"

namespace planq::host {

template <class Op>
struct HostCodebook : Op {
  static constexpr Backend kBackend = Backend::Host;
};

template <class Op, DType kElements, DType kIn, DType kOut,
          Rounding kRounding = Rounding::NearestEven>
constexpr Kernel host_codebook_kernel() {
  return codebook_kernel<HostCodebook<Op>, kElements, kIn, kOut, kRounding>(
      nothing_to_prepare, host::bind<Op::template compute<math::Stored<kElements>>>);
}

template <class Op, DType kIn, Rounding kRounding>
constexpr std::array<Kernel, 2> encoding_kernels_of() {
  return {host_codebook_kernel<Op, kIn, kIn, DType::UInt8, kRounding>(),
          host_codebook_kernel<Op, kIn, kIn, DType::UInt4, kRounding>()};
}
template <class Op, Rounding kRounding>
constexpr std::array<Kernel, 8> encoding_kernels_by() {
  return joined(encoding_kernels_of<Op, DType::Float16, kRounding>(),
                encoding_kernels_of<Op, DType::BFloat16, kRounding>(),
                encoding_kernels_of<Op, DType::Float32, kRounding>(),
                encoding_kernels_of<Op, DType::Float64, kRounding>());
}

// Kernels from elements to codes, with nearest and with stochastic rounding.
template <class Op>
constexpr std::array<Kernel, 16> encoding_kernels() {
  return joined(encoding_kernels_by<Op, Rounding::NearestEven>(),
                encoding_kernels_by<Op, Rounding::Stochastic>());
}

template <class Op, DType kIn>
constexpr std::array<Kernel, 4> decoding_kernels_of() {
  return {host_codebook_kernel<Op, DType::Float16, kIn, DType::Float16>(),
          host_codebook_kernel<Op, DType::BFloat16, kIn, DType::BFloat16>(),
          host_codebook_kernel<Op, DType::Float32, kIn, DType::Float32>(),
          host_codebook_kernel<Op, DType::Float64, kIn, DType::Float64>()};
}

// Kernels from codes to elements.
template <class Op>
constexpr std::array<Kernel, 8> decoding_kernels() {
  return joined(decoding_kernels_of<Op, DType::UInt8>(), decoding_kernels_of<Op, DType::UInt4>());
}

}  // namespace planq::host
