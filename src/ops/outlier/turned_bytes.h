// Transposes squares of 4 x 4 bytes.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace planq::outlier {

// Byte i of word j becomes byte j of word i.
PLANQ_HD void turn_bytes(std::uint32_t (&words)[4]) {
  const auto picked = [](std::uint32_t a, std::uint32_t b, std::uint32_t places) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(a, b, places);
#else
    const std::uint64_t both = std::uint64_t{b} << 32 | a;
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i)
      result |= static_cast<std::uint32_t>(both >> 8 * (places >> 4 * i & 7) & 0xFF) << 8 * i;
    return result;
#endif
  };
  const std::uint32_t a = picked(words[0], words[1], 0x5140),
                      b = picked(words[2], words[3], 0x5140),
                      c = picked(words[0], words[1], 0x7362),
                      d = picked(words[2], words[3], 0x7362);
  words[0] = picked(a, b, 0x5410);
  words[1] = picked(a, b, 0x7632);
  words[2] = picked(c, d, 0x5410);
  words[3] = picked(c, d, 0x7632);
}

}  // namespace planq::outlier
