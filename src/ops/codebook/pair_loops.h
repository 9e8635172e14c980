// Values of 4-bit codes by a table of 16, for one instruction set; the loops that decode include
// this. No include guard: see host/instruction_sets.h.

namespace planq::host::PLANQ_LEVEL {

#if PLANQ_SIMD_X86 && PLANQ_VECTOR_BYTES == 64
// Masked forms of intrinsics zero the other lanes. Unmasked forms leave some undefined, and
// compilers warn about that.
inline constexpr __mmask16 kAll = 0xFFFF;
#endif

// Values of both codes of a byte.
template <class C>
inline void look_up_byte(std::uint8_t byte, const float* values, bool high_first, C* to) {
  to[0] = static_cast<C>(values[high_first ? byte >> 4 : byte & 15]);
  to[1] = static_cast<C>(values[high_first ? byte & 15 : byte >> 4]);
}

// Values of packed codes, two a byte.
template <class C>
void look_up_pairs(const std::uint8_t* bytes, std::int64_t count, const float* values,
                   NibbleOrder order, C* to) {
  const bool high_first = order == NibbleOrder::HighFirst;
  std::int64_t i = 0;
#if PLANQ_SIMD_X86 && PLANQ_VECTOR_BYTES == 64
  if constexpr (std::is_same_v<C, float>) {
    const __m512 table = _mm512_loadu_ps(values);
    const __m512i first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    for (; i + 16 <= count; i += 16) {
      const __m512i low = _mm512_maskz_cvtepu8_epi32(
          kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i)));
      const __m512i high = _mm512_maskz_srli_epi32(kAll, low, 4);
      const __m512 a = _mm512_maskz_permutexvar_ps(kAll, high_first ? high : low, table);
      const __m512 b = _mm512_maskz_permutexvar_ps(kAll, high_first ? low : high, table);
      _mm512_storeu_ps(to + 2 * i, _mm512_permutex2var_ps(a, first, b));
      _mm512_storeu_ps(to + 2 * i + 16, _mm512_permutex2var_ps(a, second, b));
    }
  }
#endif
  for (; i < count; ++i) look_up_byte(bytes[i], values, high_first, to + 2 * i);
}

}  // namespace planq::host::PLANQ_LEVEL
