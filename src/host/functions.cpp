#include "host/functions.h"

#include "host/simd.h"
#include "math/formats.h"

#define PLANQ_LOOPS "host/functions_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {

FunctionLoop function_loop(math::Function function) {
  const auto place = static_cast<std::size_t>(function);
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::kFunctionLoops[place];
  if (level == Level::Avx2) return avx2::kFunctionLoops[place];
#endif
  return baseline::kFunctionLoops[place];
}

void sines_and_cosines(const std::uint32_t* phases, std::int64_t count, float* sines,
                       float* cosines) {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::turns(phases, count, sines, cosines);
  if (level == Level::Avx2) return avx2::turns(phases, count, sines, cosines);
#endif
  baseline::turns(phases, count, sines, cosines);
}

}  // namespace planq::host
