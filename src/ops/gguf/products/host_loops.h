// Blocks of the product for one instruction set: see host_products.cpp. No include guard, here or
// in the parts: host/instruction_sets.h includes this once for each instruction set, and each part
// puts its loops in that set's namespace, PLANQ_LEVEL. AVX-512 without VNNI has no loops of its
// own.

#include "ops/linear/host/number_loops.h"

#if PLANQ_VNNI || PLANQ_VECTOR_BYTES == 32
#define PLANQ_HAS_TILES 1
#else
#define PLANQ_HAS_TILES 0
#endif

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about lanes that an intrinsic leaves undefined on purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#if PLANQ_VNNI || PLANQ_VECTOR_BYTES < 64
namespace planq::gguf::products::PLANQ_LEVEL {
// Columns of a block, and rows that are multiplied at once with vectors.
constexpr int kTileColumns = PLANQ_VECTOR_BYTES / 2, kRowsAtOnce = PLANQ_VNNI ? 6 : 3;
}  // namespace planq::gguf::products::PLANQ_LEVEL

// Each part uses those above it.
// clang-format off
#include "ops/gguf/products/scalar_loops.h"
#if PLANQ_HAS_TILES
#include "ops/gguf/products/vector_loops.h"
#include "ops/gguf/products/type_loops.h"
#include "ops/gguf/products/tile_loops.h"
#endif
#include "ops/gguf/products/block_loops.h"
// clang-format on
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#undef PLANQ_HAS_TILES
