// blockwise_quantize on the host: no rows yet.
#include "ops/blockwise_quantize/desc.h"

namespace planq::blockwise_quantize {

extern const std::span<const Kernel> kHostRows;
const std::span<const Kernel> kHostRows{};

}  // namespace planq::blockwise_quantize
