// Where one kernel of the family hands over to another, and how finely launches are cut: figures
// that were measured on H100 and H200. They change times alone, and other architectures use them
// until they have a file of their own. What registers and shared memory decide stands beside the
// kernels.
#pragma once

#include <cstdint>

namespace planq::affine {

// --- Segments ------------------------------------------------------------------------------------

// Bytes of the input up to which a tensor with one scale stays on the chip. Beyond this the second
// read weighs more than the first one's share that is saved.
inline constexpr std::int64_t kResidentInputBytes = 150'000'000;
// Up to here the codes find part of the input in the cache, if it was not read as a stream. Beyond
// it, whatever is kept only shortens the life of the lines that wait to be written.
inline constexpr std::int64_t kCachedBytes = 100 << 20;
// From so many vectors a segment on, few segments leave most of a GPU idle unless each has several
// multiprocessors.
inline constexpr std::int64_t kSpreadVectors = 1536;
// Four sets of a warp leave room for more warps, which is faster; nibbles of tensors with more than
// so many vectors were 2 to 6 % faster with eight on an H200.
inline constexpr std::int64_t kMostVectorsOfFourSets = 4 << 20;
// Rows of a block in the last kernel of columns, where more than the cache holds is read.
inline constexpr std::int64_t kMostChunkRows = 256;
// Shorter spans inside a channel are better read as columns.
inline constexpr std::int64_t kShortSpan = 512;

// --- Elementwise ---------------------------------------------------------------------------------

// Tensors of fewer vectors leave each thread one of them, or not more than a reading tile does.
inline constexpr std::int64_t kSmallTensor = 1 << 18, kMediumTensor = 1 << 22;
// Rows of at least so many vectors are cut into tiles.
inline constexpr std::int64_t kLongRow = 128;
// Threads that keep every multiprocessor busy.
inline constexpr std::int64_t kManyThreads = 1 << 18;

}  // namespace planq::affine
