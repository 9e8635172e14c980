// blockwise_quantize on the host. With nested statistics, the absmax are first measured into the
// workspace.
#include <algorithm>

#include "core/scratch.h"
#include "host/thread_pool.h"
#include "ops/affine/ranges/ranges.h"
#include "ops/codebook/blockwise_quantize/desc.h"
#include "ops/codebook/codebook_host.h"
#include "ops/codebook/codebook_kernels_host.h"

namespace planq::blockwise_quantize {
namespace {

// The fewest absmax that are worth waking a thread for.
constexpr std::int64_t kGrain = 1 << 15;

// The workspace of nested statistics: the absmax, and the sums of leaves of them.
template <class C>
struct Waiting {
  C *absmax, *sums;

  Waiting(const BlockCounts& counts, Scratch& scratch)
      : absmax(scratch.take<C>(static_cast<std::size_t>(counts.blocks))),
        sums(scratch.take<C>(static_cast<std::size_t>(groups_of(counts.blocks, math::kSumLeaf)))) {}
};

// Quantizes the absmax less their mean, with the dynamic map, in blocks of their own.
template <class C>
void nest(const Fields& f, const Operands& operands, const Waiting<C>& waiting, int threads) {
  const std::int64_t blocks = counts_of(f).blocks;
  const C mean = host::tree_mean(waiting.absmax, blocks, waiting.sums, threads);
  *static_cast<C*>(operands[kNestedOffset].data) = mean;
  host::parallel_for(threads, blocks, kGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) waiting.absmax[i] -= mean;
  });
  CodebookEncoding encoding{{1, {blocks}}};
  encoding.codebook = Codebook::Dynamic;
  encoding.block_size = f.nested_block_size;
  host::EncodingOperands<C> places{contiguous_view(encoding.shape, waiting.absmax),
                                   operands[kAbsmax]};
  places.absmax = static_cast<C*>(operands[kNestedAbsmax].data);
  places.measured = true;
  host::encode<C>(encoding, places, threads);
}

struct Kernels {
  using Fields = blockwise_quantize::Fields;
  static constexpr std::string_view kName = "blockwise_quantize", kBody = "blocks";
  static constexpr std::uint16_t kRevision = 2;
  static constexpr std::string_view kBasis =
      "exact integer maximum; IEEE division; comparisons with fixed thresholds; sums of absmax "
      "by a fixed tree; draws by seed and element index alone";

  static std::size_t workspace(const Descriptor& descriptor, const Device&) {
    const Fields& f = descriptor.as<Fields>();
    if (f.nested_block_size == 0) return 0;
    Scratch scratch;
    if (f.input_dtype == DType::Float64)
      Waiting<double>(counts_of(f), scratch);
    else
      Waiting<float>(counts_of(f), scratch);
    return scratch.bytes();
  }

  template <class T>
  static Status compute(const Call& call, const Stream& stream) {
    using C = math::Compute<T>;
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    const bool nested = f.nested_block_size > 0;
    Scratch scratch(call.workspace);
    host::EncodingOperands<C> places{operands[kInput], operands[kOutput]};
    places.codebook = static_cast<const float*>(operands[kCodebook].data);
    places.absmax = static_cast<C*>(operands[kAbsmax].data);
    places.measured = !f.absmax_given;
    places.set_seed(f.rounding, operands[kSeed], operands[kOffset]);
    const auto encoding = CodebookEncoding::of(f, f.block_size);
    if (!nested) {
      host::encode<T>(encoding, places, stream.threads);
      return Status::success();
    }
    const Waiting<C> waiting(counts_of(f), scratch);
    places.absmax = waiting.absmax;
    host::encode<T>(encoding, places, stream.threads);
    nest(f, operands, waiting, stream.threads);
    return Status::success();
  }
};

constexpr auto kKernels = host::encoding_kernels<Kernels>();

}  // namespace

}  // namespace planq::blockwise_quantize

PLANQ_KERNELS(blockwise_quantize, host, kKernels);
