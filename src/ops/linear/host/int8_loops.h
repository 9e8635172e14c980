// Blocks of an integer gemm for one instruction set: see host/int8.cpp. No include guard, here or
// in the parts: host/instruction_sets.h includes this once for each instruction set, and each part
// puts its loops in that set's namespace, PLANQ_LEVEL.
//
// A block's sums come from one of three bodies:
// - dots: a row of the input times a row of the weights, both read as they are in memory. For few
//   rows or few columns.
// - strips: up to four rows of the input times transposed weights, which are read line by line.
// - panels: a panel holds some columns of the weights, packed side by side, for a slice of k. Every
//   row of the input in the block is multiplied with it. For everything else.
//
// The families of instruction sets:
// - int8_vnni.h: AVX-512 with VNNI multiplies bytes.
// - int8_amx.h: AMX multiplies the same panels, where rows and terms fill its registers.
// - int8_vectors.h: AVX-512, AVX2, SSE2 and plain C++ multiply 16-bit numbers.

#include "ops/linear/host/number_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about lanes that an intrinsic leaves undefined on purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

// Each part uses those above it.
#include "ops/linear/host/int8_codes.h"
#if PLANQ_VNNI
#include "ops/linear/host/int8_vnni.h"
#else
#include "ops/linear/host/int8_vectors.h"
#endif
#include "ops/linear/host/int8_tiles.h"
#if PLANQ_VNNI && PLANQ_SIMD_AMX
#include "ops/linear/host/int8_amx.h"
#endif
#include "ops/linear/host/int8_bodies.h"
#include "ops/linear/host/int8_output.h"

#include "ops/linear/host/int8_blocks.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
