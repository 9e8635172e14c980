// codebook_dequantize on the host: no rows yet.
#include "ops/codebook_dequantize/desc.h"

namespace planq::codebook_dequantize {

extern const std::span<const Kernel> kHostRows;
const std::span<const Kernel> kHostRows{};

}  // namespace planq::codebook_dequantize
