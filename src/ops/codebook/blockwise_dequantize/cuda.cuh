// blockwise_dequantize on CUDA.
#pragma once

#include "ops/codebook/blockwise_dequantize/desc.h"
#include "ops/codebook/codebook_kernels.cuh"

namespace planq::blockwise_dequantize {
namespace {

struct Kernels {
  using Fields = blockwise_dequantize::Fields;
  static constexpr std::string_view kName = "blockwise_dequantize", kBody = "blocks";
  static constexpr std::uint16_t kRevision = 1;
  static constexpr std::string_view kBasis =
      "element by element; one rounding for each product and sum";
  static constexpr auto workspace = no_workspace;

  static CodebookDecoding decoding_of(const Fields& f) {
    return {f.shape,      f.input_dtype,  f.codebook,          f.entries,
            f.block_size, f.absmax_dtype, f.nested_block_size, f.nibble_order};
  }
  static Status preload(const Fields& f) {
    return cuda::preload_decoding<cuda::Element>(decoding_of(f));
  }
  static Status bind(const Call& call, Bound& bound) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    cuda::CodebookDecodingOperands places{operands[kInput], operands[kOutput]};
    places.codebook = operands[kCodebook].data;
    places.absmax = operands[kAbsmax].data;
    places.nested_absmax = operands[kNestedAbsmax].data;
    places.nested_offset = operands[kNestedOffset].data;
    places.nested_codebook = operands[kNestedCodebook].data;
    return cuda::launch_decoding<cuda::Element>(decoding_of(f), places, call.device.multiprocessors,
                                                bound);
  }
};

constexpr auto kKernels = cuda::decoding_kernels<Kernels>();

}  // namespace

}  // namespace planq::blockwise_dequantize
