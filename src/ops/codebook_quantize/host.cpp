// codebook_quantize on the host: no rows yet.
#include "ops/codebook_quantize/desc.h"

namespace planq::codebook_quantize {

extern const std::span<const Kernel> kHostRows;
const std::span<const Kernel> kHostRows{};

}  // namespace planq::codebook_quantize
