#include "ops/affine/elementwise/host.h"

#include "ops/affine/float8_code.h"

#define PLANQ_LOOPS "ops/affine/elementwise/loops.h"
#include "host/instruction_sets.h"

namespace planq::host {

template <class T>
const AffineLoops<math::Compute<T>>& affine_loops() {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::kLoops<T>;
  if (level == Level::Avx2) return avx2::kLoops<T>;
#endif
  return baseline::kLoops<T>;
}

template const AffineLoops<float>& affine_loops<math::Half>();
template const AffineLoops<float>& affine_loops<math::Bfloat16>();
template const AffineLoops<float>& affine_loops<float>();
template const AffineLoops<double>& affine_loops<double>();

}  // namespace planq::host
