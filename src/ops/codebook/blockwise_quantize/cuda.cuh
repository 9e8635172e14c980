// blockwise_quantize on CUDA. With nested statistics, the absmax are first measured into the
// workspace.
#pragma once

#include "core/scratch.h"
#include "cuda/launch.cuh"
#include "ops/codebook/blockwise_quantize/desc.h"
#include "ops/codebook/codebook_kernels.cuh"

namespace planq::blockwise_quantize {
namespace {

using C = math::Compute<cuda::Element>;

// The workspace of nested statistics: the absmax, and the sums of leaves of them.
struct Waiting {
  C *absmax, *sums;

  Waiting(const BlockCounts& counts, Scratch& scratch)
      : absmax(scratch.take<C>(static_cast<std::size_t>(counts.blocks))),
        sums(scratch.take<C>(static_cast<std::size_t>(cuda::nesting_sums(counts.blocks)))) {}
};

struct Kernels {
  using Fields = blockwise_quantize::Fields;
  static constexpr std::string_view kName = "blockwise_quantize", kBody = "blocks";
  static constexpr std::uint16_t kRevision = 2;
  static constexpr std::string_view kBasis =
      "exact integer maximum; IEEE division; comparisons with fixed thresholds; sums of absmax by "
      "a fixed tree; draws by seed and element index alone";

  static std::size_t workspace(const Descriptor& descriptor, const Device&) {
    const Fields& f = descriptor.as<Fields>();
    if (f.nested_block_size == 0) return 0;
    Scratch scratch;
    Waiting(counts_of(f), scratch);
    return scratch.bytes();
  }
  static Status preload(const Fields& f) {
    PLANQ_TRY(cuda::preload_encoding<cuda::Element>(CodebookEncoding::of(f, f.block_size)));
    return f.nested_block_size > 0 ? cuda::preload_nesting<cuda::Element>() : Status::success();
  }
  static Status bind(const Call& call, Bound& bound) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    cuda::CodebookEncodingOperands places{operands[kInput], operands[kOutput]};
    places.codebook = operands[kCodebook].data;
    places.absmax = operands[kAbsmax].data;
    places.measured = !f.absmax_given;
    places.seed = operands[kSeed];
    places.offset = operands[kOffset];
    const auto encoding = CodebookEncoding::of(f, f.block_size);
    if (f.nested_block_size == 0)
      return cuda::launch_encoding<cuda::Element>(encoding, places, call.device.multiprocessors,
                                                  bound);
    Scratch scratch(call.workspace);
    const BlockCounts counts = counts_of(f);
    const Waiting waiting(counts, scratch);
    places.absmax = waiting.absmax;
    PLANQ_TRY(
        cuda::launch_encoding<cuda::Element>(encoding, places, call.device.multiprocessors, bound));
    return cuda::launch_nesting<cuda::Element>(
        {waiting.absmax, waiting.sums, operands[kNestedOffset].data, operands[kAbsmax].data,
         operands[kNestedAbsmax].data},
        counts.blocks, f.nested_block_size, call.device.multiprocessors, bound);
  }
};

constexpr auto kKernels = cuda::encoding_kernels<Kernels>();

}  // namespace

}  // namespace planq::blockwise_quantize
