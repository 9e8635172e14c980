// blockwise_dequantize on the host: no rows yet.
#include "ops/blockwise_dequantize/desc.h"

namespace planq::blockwise_dequantize {

extern const std::span<const Kernel> kHostRows;
const std::span<const Kernel> kHostRows{};

}  // namespace planq::blockwise_dequantize
