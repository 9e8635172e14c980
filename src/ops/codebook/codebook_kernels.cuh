// The CUDA rows of the codebook operators; see codebook_kernels.h. A struct of rows has preload()
// and bind(), for the element type of the file.
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
constexpr Kernel cuda_codebook_row() {
  using Rows = CudaCodebook<Op>;
  return codebook_row<Rows, kElement, kIn, kOut, kRounding>(Rows::prepare, Op::bind);
}

template <class Op>
constexpr std::array<Kernel, 4> encoding_rows() {
  return {cuda_codebook_row<Op, kElement, DType::UInt8>(),
          cuda_codebook_row<Op, kElement, DType::UInt4>(),
          cuda_codebook_row<Op, kElement, DType::UInt8, Rounding::Stochastic>(),
          cuda_codebook_row<Op, kElement, DType::UInt4, Rounding::Stochastic>()};
}
template <class Op>
constexpr std::array<Kernel, 2> decoding_rows() {
  return {cuda_codebook_row<Op, DType::UInt8, kElement>(),
          cuda_codebook_row<Op, DType::UInt4, kElement>()};
}

}  // namespace planq::cuda
