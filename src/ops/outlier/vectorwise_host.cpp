#include "ops/outlier/vectorwise_host.h"

#define PLANQ_LOOPS "ops/outlier/vectorwise_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {

template <class C>
const VectorwiseLoops<C>& vectorwise_loops() {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::kVectorwise<C>;
  if (level == Level::Avx2) return avx2::kVectorwise<C>;
#endif
  return baseline::kVectorwise<C>;
}

template const VectorwiseLoops<float>& vectorwise_loops<float>();
template const VectorwiseLoops<double>& vectorwise_loops<double>();

}  // namespace planq::host
