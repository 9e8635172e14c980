// The loops of functions.cpp, for one instruction set. No include guard: see instruction_sets.h.

namespace planq::host::PLANQ_LEVEL {

template <math::Function kFunction>
void apply(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = math::narrow<float>(math::value_of<kFunction>(values[i]));
}

inline constexpr FunctionLoop kFunctionLoops[] = {
#define PLANQ_FUNCTION_LOOP(enumerator, name, function) apply<math::Function::enumerator>,
    PLANQ_FUNCTIONS(PLANQ_FUNCTION_LOOP)
#undef PLANQ_FUNCTION_LOOP
};

inline void turns(const std::uint32_t* __restrict phases, std::int64_t count,
                  float* __restrict sines, float* __restrict cosines) {
  for (std::int64_t i = 0; i < count; ++i) {
    sines[i] = math::sin_turn(phases[i]);
    cosines[i] = math::cos_turn(phases[i]);
  }
}

}  // namespace planq::host::PLANQ_LEVEL
