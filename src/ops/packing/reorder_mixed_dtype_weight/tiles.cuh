// Kernels of reorder_mixed_dtype_weight. A transposed matrix has the elements of a vector of the
// layout side by side, so that a thread permutes them in registers. Otherwise words are transposed
// in registers on the way through a tile in shared memory, whose slots are permuted so that no two
// accesses conflict in a bank. Unaligned operands are done byte by byte.
#pragma once

#include <cstdint>

#include "cuda/divider.cuh"
#include "cuda/memory_access.cuh"
#include "math/nibbles.h"
#include "ops/packing/reorder_mixed_dtype_weight/desc.h"

namespace planq::reorder_mixed_dtype_weight {

inline constexpr int kThreads = 256;

struct Args {
  const std::uint8_t* input;
  std::uint8_t* output;
  std::int64_t rows, columns, chunks;         // K, N, K / 64
  std::int64_t matrix_stride, layout_stride;  // bytes from row to row
  std::int64_t row_bytes, bytes;              // of the reordered weight
  bool transposed;
  // Vectors alone: vectors in a row and in all, chunks, and tiles side by side.
  cuda::Divider row_vectors, chunk_count;
  std::uint32_t vectors, tiles_across;

  // Where a vector of the layout lies.
  __device__ __forceinline__ std::int64_t place(std::uint32_t vector) const {
    const std::uint32_t row = row_vectors.quotient(vector);
    return row * layout_stride + std::int64_t{vector - row * row_vectors.divisor} * 16;
  }
};

// Element j of word i becomes element i of word j; words of 4 bytes or 8 nibbles.
__device__ __forceinline__ void exchange(std::uint32_t& a, std::uint32_t& b, std::uint32_t low,
                                         std::uint32_t high) {
  const std::uint32_t first = __byte_perm(a, b, low);
  b = __byte_perm(a, b, high);
  a = first;
}
template <int kCount>
__device__ __forceinline__ void transpose_elements(std::uint32_t (&words)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) exchange(words[i], words[i + kCount / 2], 0x5410, 0x7632);
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i % (kCount / 2) < kCount / 4) exchange(words[i], words[i + kCount / 4], 0x6240, 0x7351);
  if constexpr (kCount == 8) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const std::uint32_t a = words[i], b = words[i + 1];
      words[i] = math::nibbles_joined(a, b);
      words[i + 1] = math::nibbles_joined(a >> 4, b >> 4);
    }
  }
}

// --- A transposed matrix -----------------------------------------------------------------------

// 16 bytes of consecutive elements of a column to the four words that hold them.
template <class L>
__device__ __forceinline__ uint4 ordered(const uint4& v) {
  if constexpr (L::kBits == 8) {
    return make_uint4(__byte_perm(v.x, v.z, 0x5140), __byte_perm(v.x, v.z, 0x7362),
                      __byte_perm(v.y, v.w, 0x5140), __byte_perm(v.y, v.w, 0x7362));
  } else {
    std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
    transpose_elements(words);
#pragma unroll
    for (std::uint32_t& word : words) word = __byte_perm(inner_nibbles_swapped(word), 0, 0x3120);
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
}
template <class L>
__device__ __forceinline__ uint4 disordered(const uint4& v) {
  if constexpr (L::kBits == 8) {
    return make_uint4(__byte_perm(v.x, v.y, 0x6420), __byte_perm(v.z, v.w, 0x6420),
                      __byte_perm(v.x, v.y, 0x7531), __byte_perm(v.z, v.w, 0x7531));
  } else {
    std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (std::uint32_t& word : words) word = inner_nibbles_swapped(__byte_perm(word, 0, 0x3120));
    transpose_elements(words);
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
}
template <class L>
__device__ __forceinline__ uint4 signs_flipped(const uint4& v) {
  return make_uint4(v.x ^ L::kSigns, v.y ^ L::kSigns, v.z ^ L::kSigns, v.w ^ L::kSigns);
}

inline constexpr int kVectorsAThread = 1;

template <class L, bool kInverse>
__global__ void __launch_bounds__(kThreads) reorder_vectors(const __grid_constant__ Args args) {
  const std::uint32_t first = blockIdx.x * (kThreads * kVectorsAThread) + threadIdx.x;
  uint4 vectors[kVectorsAThread];
  std::int64_t to[kVectorsAThread];
#pragma unroll
  for (int i = 0; i < kVectorsAThread; ++i) {
    const std::uint32_t vector = first + i * kThreads;
    if (vector >= args.vectors) continue;
    constexpr std::uint32_t kOfLine = kLineBytes / 16, kOfSpan = L::kSpanBytes / 16;
    const std::uint32_t line = vector / kOfLine, group = args.chunk_count.quotient(line);
    const std::int64_t column = std::int64_t{group} * L::kColumns + vector % kOfLine / kOfSpan;
    const std::int64_t chunk = line - group * args.chunk_count.divisor;
    const std::int64_t matrix =
        column * args.matrix_stride + chunk * L::kSpanBytes + vector % kOfSpan * 16;
    const std::int64_t layout = args.place(vector);
    vectors[i] = cuda::load_once(args.input + (kInverse ? layout : matrix));
    to[i] = kInverse ? matrix : layout;
  }
#pragma unroll
  for (int i = 0; i < kVectorsAThread; ++i) {
    if (first + i * kThreads >= args.vectors) continue;
    const uint4 v = vectors[i];
    cuda::store_vector(args.output + to[i], kInverse ? disordered<L>(signs_flipped<L>(v))
                                                     : signs_flipped<L>(ordered<L>(v)));
  }
}

// --- A matrix as it is -------------------------------------------------------------------------

// A tile is 8 vectors of the matrix wide and 32 words of the layout high. A thread holds one word
// of each column of one vector, which are the rows of that word's lanes.
template <class L>
struct Tile {
  static constexpr int kGroups = 8;                 // vectors across
  static constexpr int kWide = L::kVectorElements;  // columns of a vector
  static constexpr int kColumns = kGroups * kWide;
  static constexpr int kChunks = 32 / L::kWords;
  static constexpr int kSlots = 8;  // vectors of words in a column
  static constexpr int kPerSpan = L::kWords / 4;
  static constexpr int kVectors = kColumns * kSlots / kThreads;  // of the layout, for a thread

  uint4 slots[kColumns * kSlots];

  // Free of bank conflicts: the lanes of a warp that store to the same slot number are in different
  // groups, and those that load the vectors of one line are in different columns.
  static __device__ __forceinline__ int slot(int column, int vector) {
    return column * kSlots + (vector ^ column / kWide % kGroups ^ column % L::kColumns * kPerSpan);
  }
  __device__ __forceinline__ std::uint32_t& word(int column, int vector, int word) {
    return reinterpret_cast<std::uint32_t*>(slots + slot(column, vector))[word];
  }
};

// A thread's part of the matrix: the rows of the lanes of a word.
template <class L>
struct Piece {
  std::int64_t base;
  int group, vector, word;
  bool exists;

  __device__ __forceinline__ Piece(const Args& args, std::int64_t first_chunk,
                                   std::int64_t first_column) {
    group = threadIdx.x % Tile<L>::kGroups;
    word = threadIdx.x / Tile<L>::kGroups % 4;
    vector = threadIdx.x / cuda::kWarp;
    const std::int64_t chunk = first_chunk + vector / Tile<L>::kPerSpan;
    const std::int64_t column = first_column + group * Tile<L>::kWide;
    exists = chunk < args.chunks && column < args.columns;
    base = chunk * kChunk * args.matrix_stride + column / L::kPerByte;
  }
  __device__ __forceinline__ std::int64_t row(const Args& args, int lane) const {
    const int in_span = vector % Tile<L>::kPerSpan * 4 + word;
    return base + L::row(in_span, lane) * args.matrix_stride;
  }
};

// Vector i of the layout that a thread moves.
template <class L>
struct Stored {
  int slot;
  std::uint32_t vector;
  bool exists;

  __device__ __forceinline__ Stored(const Args& args, std::int64_t first_chunk,
                                    std::int64_t first_column, int i) {
    using T = Tile<L>;
    const int index = i * kThreads + threadIdx.x;
    const int in_line = index % 8, chunk = index / 8 % T::kChunks;
    const int lines = index / (8 * T::kChunks);
    slot = T::slot(lines * L::kColumns + in_line / T::kPerSpan,
                   chunk * T::kPerSpan + in_line % T::kPerSpan);
    exists = first_chunk + chunk < args.chunks && first_column + lines * L::kColumns < args.columns;
    const std::int64_t line =
        (first_column / L::kColumns + lines) * args.chunks + first_chunk + chunk;
    vector = static_cast<std::uint32_t>(line * 8 + in_line);
  }
};

__device__ __forceinline__ std::uint32_t& part(uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <class L>
__global__ void __launch_bounds__(kThreads) reorder_tiles(const __grid_constant__ Args args) {
  __shared__ Tile<L> tile;
  const std::int64_t first_chunk = std::int64_t{blockIdx.x / args.tiles_across} * Tile<L>::kChunks;
  const std::int64_t first_column =
      std::int64_t{blockIdx.x % args.tiles_across} * Tile<L>::kColumns;
  const Piece<L> piece(args, first_chunk, first_column);
  if (piece.exists) {
    uint4 rows[L::kLanes];
#pragma unroll
    for (int lane = 0; lane < L::kLanes; ++lane)
      rows[lane] = cuda::load_once(args.input + piece.row(args, lane));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t words[L::kLanes];
#pragma unroll
      for (int lane = 0; lane < L::kLanes; ++lane) words[lane] = part(rows[lane], i);
      transpose_elements(words);
#pragma unroll
      for (int j = 0; j < L::kLanes; ++j)
        tile.word(piece.group * Tile<L>::kWide + i * L::kLanes + j, piece.vector, piece.word) =
            words[j] ^ L::kSigns;
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Tile<L>::kVectors; ++i) {
    const Stored<L> stored(args, first_chunk, first_column, i);
    if (stored.exists)
      cuda::store_vector(args.output + args.place(stored.vector), tile.slots[stored.slot]);
  }
}

template <class L>
__global__ void __launch_bounds__(kThreads) restore_tiles(const __grid_constant__ Args args) {
  __shared__ Tile<L> tile;
  const std::int64_t first_chunk = std::int64_t{blockIdx.x / args.tiles_across} * Tile<L>::kChunks;
  const std::int64_t first_column =
      std::int64_t{blockIdx.x % args.tiles_across} * Tile<L>::kColumns;
  uint4 vectors[Tile<L>::kVectors];
#pragma unroll
  for (int i = 0; i < Tile<L>::kVectors; ++i) {
    const Stored<L> stored(args, first_chunk, first_column, i);
    if (stored.exists) vectors[i] = cuda::load_once(args.input + args.place(stored.vector));
  }
#pragma unroll
  for (int i = 0; i < Tile<L>::kVectors; ++i) {
    const Stored<L> stored(args, first_chunk, first_column, i);
    if (stored.exists) tile.slots[stored.slot] = vectors[i];
  }
  __syncthreads();
  const Piece<L> piece(args, first_chunk, first_column);
  if (!piece.exists) return;
  uint4 rows[L::kLanes];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t words[L::kLanes];
#pragma unroll
    for (int j = 0; j < L::kLanes; ++j)
      words[j] =
          tile.word(piece.group * Tile<L>::kWide + i * L::kLanes + j, piece.vector, piece.word) ^
          L::kSigns;
    transpose_elements(words);
#pragma unroll
    for (int lane = 0; lane < L::kLanes; ++lane) part(rows[lane], i) = words[lane];
  }
#pragma unroll
  for (int lane = 0; lane < L::kLanes; ++lane)
    cuda::store_vector(args.output + piece.row(args, lane), rows[lane]);
}

// --- Any addresses -----------------------------------------------------------------------------

// Element (k, n) of either side, in the lowest bits.
template <class L>
__device__ __forceinline__ std::uint32_t from_matrix(const Args& args, std::int64_t k,
                                                     std::int64_t n) {
  const std::int64_t row = args.transposed ? n : k, at = args.transposed ? k : n;
  const std::uint32_t byte =
      cuda::load_single(args.input + row * args.matrix_stride + at / L::kPerByte);
  return L::kPerByte == 1 ? byte : byte >> at % 2 * 4 & 15;
}
template <class L>
__device__ __forceinline__ std::uint32_t from_layout(const Args& args, std::int64_t k,
                                                     std::int64_t n) {
  const int row = static_cast<int>(k % kChunk), lane = L::lane(row);
  const std::int64_t line = n / L::kColumns * args.chunks + k / kChunk;
  const std::int64_t byte =
      line * kLineBytes + n % L::kColumns * L::kSpanBytes + L::word(row) * 4 + lane / L::kPerByte;
  const std::int64_t start = byte / args.row_bytes;
  const std::uint32_t found =
      cuda::load_single(args.input + start * args.layout_stride + (byte - start * args.row_bytes));
  return L::kPerByte == 1 ? found : found >> lane % 2 * 4 & 15;
}

// A thread per byte of the output.
template <class L, bool kInverse>
__global__ void __launch_bounds__(kThreads) reorder_bytes(const __grid_constant__ Args args) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= args.bytes) return;
  const std::int64_t width =
      kInverse ? (args.transposed ? args.rows : args.columns) / L::kPerByte : args.row_bytes;
  const std::int64_t row = index / width, at = index - row * width;
  std::uint32_t byte = 0;
#pragma unroll
  for (int i = 0; i < L::kPerByte; ++i) {
    std::uint32_t element;
    if constexpr (kInverse) {
      const std::int64_t other = at * L::kPerByte + i;
      element = from_layout<L>(args, args.transposed ? other : row, args.transposed ? row : other);
    } else {
      const std::int64_t line = index / kLineBytes, group = line / args.chunks;
      const int in_line = static_cast<int>(index % kLineBytes), in_span = in_line % L::kSpanBytes;
      const int k = L::row(in_span / 4, in_span % 4 * L::kPerByte + i);
      element = from_matrix<L>(args, (line - group * args.chunks) * kChunk + k,
                               group * L::kColumns + in_line / L::kSpanBytes);
    }
    byte |= element << L::kBits * i;
  }
  const std::int64_t to = row * (kInverse ? args.matrix_stride : args.layout_stride) + at;
  cuda::store_once(args.output + to, static_cast<std::uint8_t>(byte ^ (L::kSigns & 0xFF)));
}

}  // namespace planq::reorder_mixed_dtype_weight
