#include "host/affine.h"

#include "host/codes.h"

#define PLANQ_LEVEL baseline
#define PLANQ_VECTOR_BYTES 16
#include "host/convert_loops.h"

#include "host/affine_loops.h"
#undef PLANQ_LEVEL
#undef PLANQ_VECTOR_BYTES

#if PLANQ_SIMD_X86
#define PLANQ_LEVEL avx2
#define PLANQ_VECTOR_BYTES 32
PLANQ_SIMD_AVX2_BEGIN
#include "host/convert_loops.h"

#include "host/affine_loops.h"
PLANQ_SIMD_END
#undef PLANQ_LEVEL
#undef PLANQ_VECTOR_BYTES
#define PLANQ_LEVEL avx512
#define PLANQ_VECTOR_BYTES 64
PLANQ_SIMD_AVX512_BEGIN
#include "host/convert_loops.h"

#include "host/affine_loops.h"
PLANQ_SIMD_END
#undef PLANQ_LEVEL
#undef PLANQ_VECTOR_BYTES
#endif

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
