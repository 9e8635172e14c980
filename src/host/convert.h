// Loops between stored elements and the compute type, for one instruction set; the loops that
// compute include this. No include guard: see instruction_sets.h.

namespace planq::host::PLANQ_LEVEL {

using math::bit_cast;
using math::Compute;
using math::Ieee;

#if PLANQ_SIMD_X86 && PLANQ_VECTOR_BYTES >= 32
#define PLANQ_HALF_LOOPS 1
#else
#define PLANQ_HALF_LOOPS 0
#endif

template <class T>
void widen(const void* from, std::int64_t count, Compute<T>* __restrict to) {
  const T* __restrict x = static_cast<const T*>(from);
  std::int64_t i = 0;
#if PLANQ_HALF_LOOPS
  if constexpr (std::is_same_v<T, math::Half>) {
    for (; i + 8 <= count; i += 8)
      _mm256_storeu_ps(to + i,
                       _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  }
#endif
  for (; i < count; ++i) to[i] = math::widen(x[i]);
}

// A NaN is first replaced by the canonical one, which the conversion instructions keep.
template <class T>
void narrow(const Compute<T>* __restrict from, std::int64_t count, void* to) {
  using C = Compute<T>;
  T* __restrict y = static_cast<T*>(to);
  std::int64_t i = 0;
#if PLANQ_HALF_LOOPS
  if constexpr (std::is_same_v<T, math::Half>) {
    for (; i + 8 <= count; i += 8) {
      const __m256 x = _mm256_loadu_ps(from + i);
      const __m256 nan = _mm256_set1_ps(math::canonical_nan<float>());
      const __m256 clean = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i), _mm256_cvtps_ph(clean, 0));
    }
  }
#endif
  if constexpr (std::is_same_v<T, math::Bfloat16>) {
    for (; i < count; ++i) {
      const std::uint32_t bits = bit_cast<std::uint32_t>(from[i]);
      const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
      const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
      y[i].bits = static_cast<std::uint16_t>(nan ? 0x7FC0u : rounded);
    }
  } else {
    for (; i < count; ++i) y[i] = math::narrow<T>(static_cast<C>(from[i]));
  }
}

#undef PLANQ_HALF_LOOPS

}  // namespace planq::host::PLANQ_LEVEL
