// codebook_quantize on CUDA: the whole tensor is one block.
#pragma once

#include <algorithm>

#include "cuda/launch.cuh"
#include "ops/codebook/codebook_kernels.cuh"
#include "ops/codebook/codebook_quantize/desc.h"

namespace planq::codebook_quantize {
namespace {

struct Kernels {
  using Fields = codebook_quantize::Fields;
  static constexpr std::string_view kName = "codebook_quantize", kBody = "elements";
  static constexpr std::uint16_t kRevision = 2;
  static constexpr std::string_view kBasis =
      "exact integer maximum; IEEE division; comparisons with fixed thresholds; draws by seed and "
      "element index alone";
  static constexpr auto workspace = no_workspace;

  static CodebookEncoding encoding_of(const Fields& f) {
    return CodebookEncoding::of(f, std::max<std::int64_t>(f.shape.elements(), 1));
  }
  static Status preload(const Fields& f) {
    return cuda::preload_encoding<cuda::Element>(encoding_of(f));
  }
  static Status bind(const Call& call, Bound& bound) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    cuda::CodebookEncodingOperands places{operands[kInput], operands[kOutput]};
    places.codebook = operands[kCodebook].data;
    places.absmax = f.normalized ? nullptr : operands[kAbsmax].data;
    places.measured = places.absmax && !f.absmax_given;
    places.seed = operands[kSeed];
    places.offset = operands[kOffset];
    if (places.measured && f.shape.elements() == 0)
      return cuda::clear(places.absmax, sizeof(math::Compute<cuda::Element>), bound);
    return cuda::launch_encoding<cuda::Element>(encoding_of(f), places, call.device.multiprocessors,
                                                bound);
  }
};

constexpr auto kKernels = cuda::encoding_kernels<Kernels>();

}  // namespace

}  // namespace planq::codebook_quantize
