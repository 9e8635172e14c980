// The CUDA rows of the codebook operators; see core/codebook_rows.h. A struct of rows has prepare()
// and launch(), for the float type of the slice.
#pragma once

#include "cuda/slice.cuh"
#include "ops/codebook/codebook_cuda.h"
#include "ops/codebook/codebook_kernels.h"

namespace planq::cuda {

// What select() keeps.
template <class Fields>
struct CodebookState {
  Fields fields;
  int multiprocessors;
};

template <class Op>
struct CudaCodebook : Op {
  static constexpr Backend kBackend = Backend::Cuda;

  static Status prepare(const Descriptor& descriptor, const Device& device, State& state) {
    using Fields = typename Op::Fields;
    auto& kept = state.emplace<CodebookState<Fields>>();
    kept = {descriptor.as<Fields>(), device.multiprocessors};
    return Op::preload(kept.fields);
  }
  static Status launch(const State& state, const Operands& operands, Workspace workspace,
                       const Stream& stream) {
    const auto& kept = state.as<CodebookState<typename Op::Fields>>();
    return Op::launch(kept.fields, operands, workspace, kept.multiprocessors, stream.handle);
  }
};

template <class Op, DType kIn, DType kOut, Rounding kRounding = Rounding::NearestEven>
constexpr Kernel cuda_codebook_row() {
  using Rows = CudaCodebook<Op>;
  return codebook_row<Rows, kSlice, kIn, kOut, kRounding>(Rows::prepare, Rows::launch);
}

template <class Op>
constexpr std::array<Kernel, 4> encoding_rows() {
  return {cuda_codebook_row<Op, kSlice, DType::UInt8>(),
          cuda_codebook_row<Op, kSlice, DType::UInt4>(),
          cuda_codebook_row<Op, kSlice, DType::UInt8, Rounding::Stochastic>(),
          cuda_codebook_row<Op, kSlice, DType::UInt4, Rounding::Stochastic>()};
}
template <class Op>
constexpr std::array<Kernel, 2> decoding_rows() {
  return {cuda_codebook_row<Op, DType::UInt8, kSlice>(),
          cuda_codebook_row<Op, DType::UInt4, kSlice>()};
}

}  // namespace planq::cuda
