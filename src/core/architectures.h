// The architectures of GPUs. A new one is an entry of this table, which the build reads too, and
// kernels where it has faster ones than those for the architectures before it.
#pragma once

#include <cstdint>

namespace planq {

// (compute capability times ten,
//  of its largest part: multiprocessors, threads that one of them can have, bytes of shared memory
//  that a block can have, MB of L2,
//  what a release has for it: "real" is code, "virtual" PTX for architectures without code)
// clang-format off
#define PLANQ_GPU_ARCHITECTURES(_)                                 \
  _(80, 108, 2048, 166912, 40, "real")          /* A100 */         \
  _(86, 84, 1536, 101376, 6, "")                /* A40 */          \
  _(87, 16, 1536, 166912, 4, "")                /* Orin */         \
  _(89, 142, 1536, 101376, 96, "")              /* L40S */         \
  _(90, 132, 2048, 232448, 60, "real virtual")  /* H200 */         \
  _(100, 148, 2048, 232448, 126, "")            /* B200 */         \
  _(103, 148, 2048, 232448, 126, "")            /* B300 */         \
  _(110, 20, 1536, 232448, 32, "")              /* Thor */         \
  _(120, 188, 1536, 101376, 128, "")            /* RTX PRO 6000 */ \
  _(121, 48, 1536, 101376, 24, "")              /* GB10 */
// clang-format on

// Of an architecture that is not listed, the one before.
constexpr int threads_of_multiprocessor(std::int32_t arch) {
  int threads = 0;
#define PLANQ_THREADS(listed, multiprocessors, each, ...) \
  if (listed <= arch) threads = each;
  PLANQ_GPU_ARCHITECTURES(PLANQ_THREADS)
#undef PLANQ_THREADS
  return threads;
}

// Thread block clusters, and launches that may begin before the one ahead of them has ended.
constexpr bool has_clusters(std::int32_t arch) { return arch >= 90; }
constexpr bool has_dependent_launches(std::int32_t arch) { return arch >= 90; }

// The same of the architecture that code is compiled for, and whether it converts float8 codes.
#if defined(__CUDA_ARCH__)
#define PLANQ_HAS_CLUSTERS (__CUDA_ARCH__ >= 900)
#define PLANQ_HAS_DEPENDENT_LAUNCHES (__CUDA_ARCH__ >= 900)
#define PLANQ_CONVERTS_FLOAT8 (__CUDA_ARCH__ >= 890)
#else
#define PLANQ_HAS_CLUSTERS 0
#define PLANQ_HAS_DEPENDENT_LAUNCHES 0
#define PLANQ_CONVERTS_FLOAT8 0
#endif

}  // namespace planq
