#include "ops/kv_cache/columns_host.h"

#include <algorithm>
#include <cstring>

#include "host/simd.h"
#include "ops/kv_cache/cache.h"

namespace planq::kv_cache {

// Of one type of elements.
struct ColumnLoops {
  FindPeak find_peak;
  WriteColumns copy, to_int8, to_e4m3, to_e5m2, to_half, to_bfloat16;

  WriteColumns writer(DType from, DType to) const {
    if (from == to) return copy;
    if (to == DType::Int8) return to_int8;
    if (to == DType::Float8E4M3FN) return to_e4m3;
    if (to == DType::Float8E5M2) return to_e5m2;
    return to == DType::Float16 ? to_half : to_bfloat16;
  }
};

}  // namespace planq::kv_cache

#define PLANQ_LOOPS "ops/kv_cache/columns_loops.h"
#include "host/instruction_sets.h"

namespace planq::kv_cache {

namespace {

template <DType kFrom>
const ColumnLoops& column_loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kColumnLoops<kFrom>;
  if (level == host::Level::Avx2) return host::avx2::kColumnLoops<kFrom>;
#endif
  return host::baseline::kColumnLoops<kFrom>;
}

const ColumnLoops& column_loops_of(DType from) {
  if (from == DType::Float16) return column_loops<DType::Float16>();
  if (from == DType::BFloat16) return column_loops<DType::BFloat16>();
  return column_loops<DType::Float32>();
}

}  // namespace

FindPeak peak_finder(DType from) { return column_loops_of(from).find_peak; }

WriteColumns columns_writer(DType from, DType to) { return column_loops_of(from).writer(from, to); }

}  // namespace planq::kv_cache
