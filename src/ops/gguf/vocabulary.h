// The enumerations of descriptors of the gguf family; see core/vocabulary.h.
#pragma once

#include <cstddef>

#include "core/vocabulary.h"

namespace planq {

// clang-format off
// Types of blocks in GGUF files, with the elements of a block and its bytes.
#define PLANQ_GGUF_TYPE_NAMES(_) \
  _(Q4_0, "q4_0", 32, 18) _(Q4_1, "q4_1", 32, 20) _(Q5_0, "q5_0", 32, 22) \
  _(Q5_1, "q5_1", 32, 24) _(Q8_0, "q8_0", 32, 34) _(Q8_1, "q8_1", 32, 36) \
  _(Q8_K, "q8_k", 256, 292) _(Q2_K, "q2_k", 256, 84) _(Q3_K, "q3_k", 256, 110) \
  _(Q4_K, "q4_k", 256, 144) _(Q5_K, "q5_k", 256, 176) _(Q6_K, "q6_k", 256, 210) \
  _(Iq4Nl, "iq4_nl", 32, 18) _(Iq4Xs, "iq4_xs", 256, 136) _(Mxfp4, "mxfp4", 32, 17) \
  _(Nvfp4, "nvfp4", 64, 36) _(Tq1_0, "tq1_0", 256, 54) _(Tq2_0, "tq2_0", 256, 66) \
  _(Q1_0, "q1_0", 128, 18) _(Q2_0, "q2_0", 64, 18) _(Iq2Xxs, "iq2_xxs", 256, 66) \
  _(Iq2Xs, "iq2_xs", 256, 74) _(Iq2S, "iq2_s", 256, 82) _(Iq3Xxs, "iq3_xxs", 256, 98) \
  _(Iq3S, "iq3_s", 256, 110) _(Iq1S, "iq1_s", 256, 50) _(Iq1M, "iq1_m", 256, 56)
PLANQ_DEFINE(GgufType, PLANQ_GGUF_TYPE_NAMES)
// clang-format on

namespace gguf {

#define PLANQ_ELEMENTS(value, name, elements, bytes) elements,
#define PLANQ_BYTES(value, name, elements, bytes) bytes,
inline constexpr int kBlockElements[] = {PLANQ_GGUF_TYPE_NAMES(PLANQ_ELEMENTS)};
inline constexpr int kBlockBytes[] = {PLANQ_GGUF_TYPE_NAMES(PLANQ_BYTES)};
#undef PLANQ_BYTES
#undef PLANQ_ELEMENTS

// Of a block.
constexpr int elements_of(GgufType type) { return kBlockElements[static_cast<std::size_t>(type)]; }
constexpr int bytes_of(GgufType type) { return kBlockBytes[static_cast<std::size_t>(type)]; }

// Whether codes are points of a grid. Which of these is best, only an importance matrix tells.
constexpr bool has_grid(GgufType type) { return type >= GgufType::Iq2Xxs; }

// Neighbours whose products share a scale, at most 32.
constexpr int sub_block_of(GgufType type) {
  switch (type) {
    case GgufType::Q2_K:
    case GgufType::Q3_K:
    case GgufType::Q6_K:
    case GgufType::Nvfp4:
    case GgufType::Iq2Xs:
    case GgufType::Iq2S:
    case GgufType::Iq1M:
      return 16;
    default:
      return 32;
  }
}

}  // namespace gguf
}  // namespace planq
