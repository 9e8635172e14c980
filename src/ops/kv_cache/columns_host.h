// What the operators of a cache do with neighbouring columns on the host, by loops that are
// compiled for every instruction set.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace planq::kv_cache {

// Columns that are taken at a time, at most.
inline constexpr std::int64_t kChunk = 128;

// The bits of the largest magnitude.
using FindPeak = std::uint32_t (*)(const void* from, std::int64_t count);
// Copies, rounded numbers or codes. `to` may be any memory that numbers may lie in.
using WriteColumns = void (*)(const void* from, float scale, std::int64_t count, void* to);

FindPeak peak_finder(DType from);
WriteColumns columns_writer(DType from, DType to);

}  // namespace planq::kv_cache
