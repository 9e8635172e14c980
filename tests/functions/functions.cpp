// The loops of elementary functions of every instruction set that this processor has, for ctypes.
#include "host/functions.cpp"

namespace {

using namespace planq;

struct LevelLoops {
  const char* name;
  const host::FunctionLoop* loops;
  decltype(&host::baseline::turns) turns;
};

#define LEVEL_LOOPS(level) \
  LevelLoops { #level, host::level::kFunctionLoops, host::level::turns }
const LevelLoops kLevels[] = {
    LEVEL_LOOPS(baseline),
#if PLANQ_SIMD_X86
    LEVEL_LOOPS(avx2),
    LEVEL_LOOPS(avx512),
#endif
};

const char* const kFunctionNames[] = {
#define NAME(enumerator, name, function) name,
    PLANQ_FUNCTIONS(NAME)
#undef NAME
        "sin_turn",
    "cos_turn",
};
constexpr int kSinTurn = std::size(kFunctionNames) - 2;

// Behind the levels: what the library chooses.
constexpr int kChosen = std::size(kLevels);

host::FunctionLoop loop_of(int level, int function) {
  return level == kChosen ? host::function_loop(static_cast<math::Function>(function))
                          : kLevels[level].loops[function];
}

void apply_turn(int level, bool cosine, std::uint32_t* words, std::int64_t count) {
  const auto turns = level == kChosen ? host::sines_and_cosines : kLevels[level].turns;
  constexpr std::int64_t kPart = 512;
  float sines[kPart], cosines[kPart];
  for (std::int64_t i = 0; i < count; i += kPart) {
    const std::int64_t part = count - i < kPart ? count - i : kPart;
    turns(words + i, part, sines, cosines);
    std::memcpy(words + i, cosine ? cosines : sines, sizeof(float) * part);
  }
}

}  // namespace

extern "C" {

// Null behind the last.
const char* function_name(int function) {
  return function < static_cast<int>(std::size(kFunctionNames)) ? kFunctionNames[function]
                                                                : nullptr;
}
// Those that this processor has, the widest last; null behind them.
const char* level_name(int level) {
  return level <= static_cast<int>(host::detect_level()) ? kLevels[level].name : nullptr;
}
int chosen_level() { return kChosen; }

// Writes the bits of results over those of the inputs.
void apply(int level, int function, std::uint32_t* words, std::int64_t count) {
  const host::StrictFloat strict;
  if (function >= kSinTurn) return apply_turn(level, function > kSinTurn, words, count);
  loop_of(level, function)(reinterpret_cast<float*>(words), count);
}
}
