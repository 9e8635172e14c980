// codebook_dequantize on CUDA: the whole tensor is one block.
#pragma once

#include <algorithm>

#include "ops/codebook/codebook_dequantize/desc.h"
#include "ops/codebook/codebook_kernels.cuh"

namespace planq::codebook_dequantize {
namespace {

struct Kernels {
  using Fields = codebook_dequantize::Fields;
  static constexpr std::string_view kName = "codebook_dequantize", kBody = "elements";
  static constexpr std::uint16_t kRevision = 1;
  static constexpr std::string_view kBasis = "element by element; one rounding for each product";
  static constexpr auto workspace = no_workspace;

  static CodebookDecoding decoding_of(const Fields& f) {
    const std::int64_t whole = std::max<std::int64_t>(f.shape.elements(), 1);
    return {f.shape, f.input_dtype,  f.codebook, f.entries,
            whole,   f.absmax_dtype, 0,          f.nibble_order};
  }
  static Status preload(const Fields& f) {
    return cuda::preload_decoding<cuda::Element>(decoding_of(f));
  }
  static Status bind(const Call& call, Bound& bound) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    cuda::CodebookDecodingOperands places{operands[kInput], operands[kOutput]};
    places.codebook = operands[kCodebook].data;
    places.absmax = f.normalized ? nullptr : operands[kAbsmax].data;
    return cuda::launch_decoding<cuda::Element>(decoding_of(f), places, call.device.multiprocessors,
                                                bound);
  }
};

constexpr auto kKernels = cuda::decoding_kernels<Kernels>();

}  // namespace

}  // namespace planq::codebook_dequantize
