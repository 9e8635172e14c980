// In the place of src/cuda/mma.cuh: steps of the tensor cores of sm_90 by their model, and copies
// that are over at once.
#pragma once

#include <vector>

#include "cuda/memory_access.cuh"
#include "math/formats.h"
#include "math/tensor_core.h"

namespace planq::cuda {

// Operands that a test watches: where each begins, and the byte behind it.
struct Watched {
  std::uintptr_t first, behind;
};
inline std::vector<Watched>& watched() {
  static std::vector<Watched> operands;
  return operands;
}
// Whether a copy read bytes behind one of them.
inline bool& has_read_behind() {
  static bool has = false;
  return has;
}
inline void check_copy(const void* from, int bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(from);
  for (const Watched& each : watched())
    has_read_behind() |= first + bytes > each.behind && first < each.behind + kVectorBytes &&
                         first + kVectorBytes > each.first;
}

inline void copy_async(SharedAddress shared, const void* from) {
  if (!aligned_to(from, kVectorBytes) || shared % kVectorBytes != 0) std::abort();
  check_copy(from, kVectorBytes);
  std::memcpy(reinterpret_cast<void*>(shared), from, kVectorBytes);
}
template <int kBytes>
void copy_async(SharedAddress shared, const void* from) {
  if (!aligned_to(from, kBytes) || shared % kBytes != 0) std::abort();
  check_copy(from, kBytes);
  std::memcpy(reinterpret_cast<void*>(shared), from, kBytes);
}
inline void end_copy_group() {}
template <int kGroups>
void wait_for_copy_groups() {}

inline void store_shared(SharedAddress shared, uint2 words) {
  if (shared % sizeof words != 0) std::abort();
  std::memcpy(reinterpret_cast<void*>(shared), &words, sizeof words);
}
inline void store_shared(SharedAddress shared, const uint4& words) {
  store_kept(reinterpret_cast<void*>(shared), words);
}
// The rows of four matrices, of which lane l gives row l % 8 of matrix l / 8.
class MatrixRows {
 public:
  explicit MatrixRows(SharedAddress shared) {
    if (shared % kVectorBytes != 0) std::abort();
    emulated::Block& block = emulated::Block::current();
    const std::uint32_t own[2] = {static_cast<std::uint32_t>(shared),
                                  static_cast<std::uint32_t>(std::uint64_t{shared} >> 32)};
    block.exchange(own, halves_);
  }
  std::uint32_t number(unsigned matrix, unsigned row, unsigned column) const {
    const unsigned lane = matrix * 8 + row;
    const std::uint64_t at = std::uint64_t{halves_[1][lane]} << 32 | halves_[0][lane];
    return reinterpret_cast<const std::uint16_t*>(at)[column];
  }

 private:
  std::uint32_t halves_[2][emulated::kWarpThreads];
};
// A lane gets numbers 2 (l % 4) and the next of row l / 4 of each.
inline void load_matrices(std::uint32_t (&words)[4], SharedAddress shared) {
  const MatrixRows rows(shared);
  const unsigned row = emulated::Block::current().lane() / 4;
  const unsigned column = emulated::Block::current().lane() % 4 * 2;
  for (unsigned i = 0; i < 4; ++i)
    words[i] = rows.number(i, row, column) | rows.number(i, row, column + 1) << 16;
}
inline void load_transposed_matrices(std::uint32_t (&words)[4], SharedAddress shared) {
  const MatrixRows rows(shared);
  const unsigned column = emulated::Block::current().lane() / 4;
  const unsigned row = emulated::Block::current().lane() % 4 * 2;
  for (unsigned i = 0; i < 4; ++i)
    words[i] = rows.number(i, row, column) | rows.number(i, row + 1, column) << 16;
}

// The words of all lanes for a step of codes: kWords of the first factor, half as many of the
// second, which is signed.
template <bool kUnsignedA, unsigned kWords>
class CodeStep {
 public:
  CodeStep(const std::uint32_t (&a)[kWords], const std::uint32_t (&b)[kWords / 2]) {
    std::uint32_t own[kWords * 3 / 2];
    std::copy(a, a + kWords, own);
    std::copy(b, b + kWords / 2, own + kWords);
    emulated::Block::current().exchange(own, words_);
  }
  // Of a row of the first factor and one of the second.
  std::int32_t sum(int row, int column) const {
    std::int32_t sum = 0;
    for (unsigned term = 0; term < kWords * 8; ++term) {
      const unsigned lane = term % 16 / 4, half = term / 16, by = term % 4 * 8;
      const std::uint32_t first = words_[half * 2 + row / 8][row % 8 * 4 + lane] >> by & 255;
      const std::uint32_t second = words_[kWords + half][column * 4 + lane] >> by & 255;
      sum += (kUnsignedA ? static_cast<int>(first) : static_cast<std::int8_t>(first)) *
             static_cast<std::int8_t>(second);
    }
    return sum;
  }

 private:
  std::uint32_t words_[kWords * 3 / 2][emulated::kWarpThreads];
};

template <bool kUnsignedA, unsigned kWords>
void multiply_onto(std::int32_t start, std::int32_t (&sums)[4], const std::uint32_t (&a)[kWords],
                   const std::uint32_t (&b)[kWords / 2]) {
  const CodeStep<kUnsignedA, kWords> step(a, b);
  const int lane = static_cast<int>(emulated::Block::current().lane());
  for (int i = 0; i < 4; ++i)
    sums[i] = start + step.sum(lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
}

template <bool kUnsignedA, unsigned kWords>
void multiply_further(std::int32_t (&sums)[4], const std::uint32_t (&a)[kWords],
                      const std::uint32_t (&b)[kWords / 2]) {
  const CodeStep<kUnsignedA, kWords> step(a, b);
  const int lane = static_cast<int>(emulated::Block::current().lane());
  for (int i = 0; i < 4; ++i) sums[i] += step.sum(lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
}

template <class T>
class WarpStep {
 public:
  // The words of all lanes: four of the first factor, two of the second.
  WarpStep(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    const std::uint32_t own[6] = {a[0], a[1], a[2], a[3], b0, b1};
    emulated::Block::current().exchange(own, words_);
  }
  // Onto the sum of a row of the first factor and one of the second.
  float add(float sum, int row, int column) const {
    float first[16], second[16];
    for (int term = 0; term < 16; ++term) {
      const int lane = term % 8 / 2, half = term / 8;
      first[term] = number(words_[half * 2 + row / 8][row % 8 * 4 + lane], term % 2);
      second[term] = number(words_[4 + half][column * 4 + lane], term % 2);
    }
    constexpr int kSmallest = std::is_same_v<T, math::Half> ? -14 : -126;
    return math::tensor_core_step<math::TensorCore16>(sum, math::FactorRow{first, kSmallest},
                                                      math::FactorRow{second, kSmallest}, 16);
  }

 private:
  static float number(std::uint32_t word, int half) {
    return math::widen(T{static_cast<std::uint16_t>(word >> 16 * half)});
  }
  std::uint32_t words_[6][emulated::kWarpThreads];
};

template <class T>
void multiply_add_floats(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                         std::uint32_t b1) {
  const WarpStep<T> step(a, b0, b1);
  const int lane = static_cast<int>(emulated::Block::current().lane());
  for (int i = 0; i < 4; ++i)
    sums[i] = step.add(sums[i], lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
}

}  // namespace planq::cuda
