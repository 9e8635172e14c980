// codebook_dequantize on the host: a tensor is one block.
#include <algorithm>

#include "ops/codebook/codebook_dequantize/desc.h"
#include "ops/codebook/codebook_host.h"
#include "ops/codebook/codebook_kernels_host.h"

namespace planq::codebook_dequantize {
namespace {

struct Kernels {
  using Fields = codebook_dequantize::Fields;
  static constexpr std::string_view kName = "codebook_dequantize", kBody = "elements";
  static constexpr std::uint16_t kRevision = 1;
  static constexpr std::string_view kBasis = "element by element; one rounding for each product";
  static constexpr auto workspace = no_workspace;

  template <class T>
  static Status compute(const Call& call, const Stream& stream) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    const std::int64_t whole = std::max<std::int64_t>(f.shape.elements(), 1);
    const CodebookDecoding decoding{f.shape, f.input_dtype,  f.codebook, f.entries,
                                    whole,   f.absmax_dtype, 0,          f.nibble_order};
    host::DecodingOperands places{operands[kInput], operands[kOutput]};
    places.codebook = static_cast<const float*>(operands[kCodebook].data);
    if (!f.normalized) places.statistics = {operands[kAbsmax].data, f.absmax_dtype};
    host::decode<T>(decoding, places, stream.threads);
    return Status::success();
  }
};

constexpr auto kKernels = host::decoding_kernels<Kernels>();

}  // namespace

}  // namespace planq::codebook_dequantize

PLANQ_KERNELS(codebook_dequantize, host, kKernels);
