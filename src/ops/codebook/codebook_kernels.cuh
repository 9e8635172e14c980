// The CUDA kernels of the codebook operators; see codebook_kernels.h. A struct of kernels has
// preload() and bind(), for the element type of the file.
#pragma once

#include "cuda/element.cuh"
#include "ops/codebook/codebook_cuda.h"
#include "ops/codebook/codebook_kernels.h"

namespace planq::cuda {

template <class Op>
struct CudaCodebook : Op {
  static constexpr Backend kBackend = Backend::Cuda;

  static Status prepare(const Descriptor& descriptor, const Device&, State&) {
    return Op::preload(descriptor.as<typename Op::Fields>());
  }
};

template <class Op, DType kIn, DType kOut, Rounding kRounding = Rounding::NearestEven>
constexpr Kernel cuda_codebook_kernel() {
  using Kernels = CudaCodebook<Op>;
  return codebook_kernel<Kernels, kElement, kIn, kOut, kRounding>(Kernels::prepare, Op::bind);
}

template <class Op>
constexpr std::array<Kernel, 4> encoding_kernels() {
  return {cuda_codebook_kernel<Op, kElement, DType::UInt8>(),
          cuda_codebook_kernel<Op, kElement, DType::UInt4>(),
          cuda_codebook_kernel<Op, kElement, DType::UInt8, Rounding::Stochastic>(),
          cuda_codebook_kernel<Op, kElement, DType::UInt4, Rounding::Stochastic>()};
}
template <class Op>
constexpr std::array<Kernel, 2> decoding_kernels() {
  return {cuda_codebook_kernel<Op, DType::UInt8, kElement>(),
          cuda_codebook_kernel<Op, DType::UInt4, kElement>()};
}

}  // namespace planq::cuda
