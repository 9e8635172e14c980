// codebook_quantize on the host: a tensor is one block.
#include <algorithm>

#include "ops/codebook/codebook_host.h"
#include "ops/codebook/codebook_kernels_host.h"
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

  template <class T>
  static Status compute(const Call& call, const Stream& stream) {
    using C = math::Compute<T>;
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    host::EncodingOperands<C> places{operands[kInput], operands[kOutput]};
    places.codebook = static_cast<const float*>(operands[kCodebook].data);
    places.absmax = f.normalized ? nullptr : static_cast<C*>(operands[kAbsmax].data);
    places.measured = !f.normalized && !f.absmax_given;
    places.set_seed(f.rounding, operands[kSeed], operands[kOffset]);
    const std::int64_t elements = f.shape.elements();
    if (places.measured && elements == 0) *places.absmax = C{0};
    const std::int64_t whole = std::max<std::int64_t>(elements, 1);
    host::encode<T>(CodebookEncoding::of(f, whole), places, stream.threads);
    return Status::success();
  }
};

constexpr auto kKernels = host::encoding_kernels<Kernels>();

}  // namespace

}  // namespace planq::codebook_quantize

PLANQ_KERNELS(codebook_quantize, host, kKernels);
