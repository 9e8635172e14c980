// Codes by a codebook on CUDA, and back, for any operator. The templates are instantiated
// in encode_f16.cu, decode_f16.cu and their neighbours.
#pragma once

#include "core/device.h"
#include "core/status.h"
#include "ops/codebook/arithmetic.h"
#include "ops/codebook/codebook.h"

namespace planq::cuda {

struct CodebookEncodingOperands {
  OperandView input, output;
  const void* codebook = nullptr;
  void* absmax = nullptr;  // of the compute type, one a block; null: elements are quotients
  bool measured = false;   // absmax are to be measured
  OperandView seed{}, offset{};
};

template <class In>
Status preload_encoding(const CodebookEncoding& encoding);
template <class In>
Status launch_encoding(const CodebookEncoding& encoding, const CodebookEncodingOperands& operands,
                       int multiprocessors, Bound& bound);

// The operands of nested statistics of `count` absmax: their mean, and codes of the differences
// from it.
struct NestingOperands {
  const void* absmax;
  void* sums;  // room for the sums of all levels, see nesting_sums()
  void *mean, *codes, *nested_absmax;
};
// The most values that one thread block sums.
inline constexpr std::int64_t kLastSums = std::int64_t{16} * math::kSumLeaf;

// A level of the tree that sums `count` values: the number of its sums, and the number of places
// that they take in memory so that the next level is aligned.
struct SumLevel {
  std::int64_t sums, room;

  explicit SumLevel(std::int64_t count)
      : sums(groups_of(count, math::kSumLeaf)), room(groups_of(sums, 4) * 4) {}
};
inline std::int64_t nesting_sums(std::int64_t count) {
  std::int64_t room = 0;
  while (count > kLastSums) {
    const SumLevel level(count);
    room += level.room;
    count = level.sums;
  }
  return room;
}
template <class In>
Status preload_nesting();
template <class In>
Status launch_nesting(const NestingOperands& operands, std::int64_t count,
                      std::int64_t nested_block_size, int multiprocessors, Bound& bound);

struct CodebookDecodingOperands {
  OperandView input, output;
  const void *codebook = nullptr, *absmax = nullptr, *nested_absmax = nullptr,
             *nested_offset = nullptr, *nested_codebook = nullptr;
};

template <class Out>
Status preload_decoding(const CodebookDecoding& decoding);
template <class Out>
Status launch_decoding(const CodebookDecoding& decoding, const CodebookDecodingOperands& operands,
                       int multiprocessors, Bound& bound);

}  // namespace planq::cuda
