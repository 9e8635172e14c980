#include "ops/outlier/absmax_host.h"

#include "host/simd.h"

#define PLANQ_LOOPS "ops/outlier/absmax_loops.h"
#include "host/instruction_sets.h"

namespace planq::outlier {

template <class T>
const TileLoops<T>& tile_loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return avx512::kLoops<T>;
  if (level == host::Level::Avx2) return avx2::kLoops<T>;
#endif
  return baseline::kLoops<T>;
}

template const TileLoops<math::Half>& tile_loops<math::Half>();
template const TileLoops<math::Bfloat16>& tile_loops<math::Bfloat16>();
template const TileLoops<float>& tile_loops<float>();

}  // namespace planq::outlier
