// Includes PLANQ_LOOPS, the name of a header of loops, once for each instruction set, with
// PLANQ_LEVEL (a namespace), PLANQ_VECTOR_BYTES, PLANQ_FMA and PLANQ_VNNI (0 or 1) defined for it.
// So neither that header nor this one has an include guard, and the file includes everything that
// the loops use before. Loops that multiply bytes define PLANQ_LOOPS_OF_BYTES: they are also
// compiled for VNNI, in a namespace of its own.
//
//     #define PLANQ_LOOPS "ops/affine/elementwise/loops.h"
//     #include "host/instruction_sets.h"

#define PLANQ_VNNI 0

#define PLANQ_LEVEL baseline
#define PLANQ_VECTOR_BYTES 16
#if defined(__FP_FAST_FMAF) && defined(__FP_FAST_FMA)
#define PLANQ_FMA 1
#else
#define PLANQ_FMA 0
#endif
#include PLANQ_LOOPS
#undef PLANQ_FMA
#undef PLANQ_LEVEL
#undef PLANQ_VECTOR_BYTES

#if PLANQ_SIMD_X86
#define PLANQ_FMA 1
#define PLANQ_LEVEL avx2
#define PLANQ_VECTOR_BYTES 32
PLANQ_SIMD_AVX2_BEGIN
#include PLANQ_LOOPS
PLANQ_SIMD_END
#undef PLANQ_LEVEL
#undef PLANQ_VECTOR_BYTES
#define PLANQ_LEVEL avx512
#define PLANQ_VECTOR_BYTES 64
PLANQ_SIMD_AVX512_BEGIN
#include PLANQ_LOOPS
PLANQ_SIMD_END
#undef PLANQ_LEVEL
#undef PLANQ_VNNI
#ifdef PLANQ_LOOPS_OF_BYTES
#define PLANQ_VNNI 1
#define PLANQ_LEVEL avx512_vnni
PLANQ_SIMD_AVX512_VNNI_BEGIN
#include PLANQ_LOOPS
PLANQ_SIMD_END
#undef PLANQ_LEVEL
#undef PLANQ_VNNI
#endif
#undef PLANQ_VECTOR_BYTES
#undef PLANQ_FMA
#else
#undef PLANQ_VNNI
#endif

#undef PLANQ_LOOPS_OF_BYTES
#undef PLANQ_LOOPS
