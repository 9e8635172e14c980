// blockwise_dequantize on the host. Nested statistics are decoded block by block on the way.
#include "ops/codebook/blockwise_dequantize/desc.h"
#include "ops/codebook/codebook_host.h"
#include "ops/codebook/codebook_kernels_host.h"

namespace planq::blockwise_dequantize {
namespace {

struct Kernels {
  using Fields = blockwise_dequantize::Fields;
  static constexpr std::string_view kName = "blockwise_dequantize", kBody = "blocks";
  static constexpr std::uint16_t kRevision = 1;
  static constexpr std::string_view kBasis =
      "element by element; one rounding for each product and sum";
  static constexpr auto workspace = no_workspace;

  template <class T>
  static Status compute(const Call& call, const Stream& stream) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    const CodebookDecoding decoding{
        f.shape,      f.input_dtype,  f.codebook,          f.entries,
        f.block_size, f.absmax_dtype, f.nested_block_size, f.nibble_order};
    host::DecodingOperands places{operands[kInput], operands[kOutput]};
    places.codebook = static_cast<const float*>(operands[kCodebook].data);
    places.statistics = {
        operands[kAbsmax].data,       f.absmax_dtype,
        f.nested_block_size,          operands[kNestedAbsmax].data,
        operands[kNestedOffset].data, static_cast<const float*>(operands[kNestedCodebook].data)};
    host::decode<T>(decoding, places, stream.threads);
    return Status::success();
  }
};

constexpr auto kKernels = host::decoding_kernels<Kernels>();

}  // namespace

}  // namespace planq::blockwise_dequantize

PLANQ_KERNELS(blockwise_dequantize, host, kKernels);
