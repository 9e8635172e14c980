// Codes by a codebook on the host, and back: what the kernels of the codebook operators share.
// Tensors go through the caches in chunks of consecutive elements.
#pragma once

#include <cstdint>

#include "host/random.h"
#include "ops/codebook/arithmetic.h"
#include "ops/codebook/codebook.h"
#include "ops/codebook/statistics.h"

namespace planq::host {

template <class C>
struct EncodingOperands {
  OperandView input, output;
  const float* codebook = nullptr;
  C* absmax = nullptr;    // one a block; null: elements are quotients as they are
  bool measured = false;  // absmax are to be measured
  std::uint64_t seed = 0, offset = 0;

  void set_seed(Rounding rounding, const OperandView& seed_view, const OperandView& offset_view) {
    if (rounding != Rounding::Stochastic) return;
    seed = scalar_of(seed_view);
    offset = scalar_of(offset_view);
  }
};

// Encodes elements of type T, and measures their absmax if asked. Allocates nothing.
template <class T>
void encode(const CodebookEncoding& encoding, const EncodingOperands<math::Compute<T>>& operands,
            int threads);

struct DecodingOperands {
  OperandView input, output;
  const float* codebook = nullptr;
  BlockStatistics statistics = {};
};

// Decodes codes to elements of type T. Allocates nothing.
template <class T>
void decode(const CodebookDecoding& decoding, const DecodingOperands& operands, int threads);

// The mean of `count` numbers by the tree of docs/numerics/codebook.md. `sums` holds one sum for
// each leaf of math::kSumLeaf numbers.
template <class C>
C tree_mean(const C* values, std::int64_t count, C* sums, int threads);

}  // namespace planq::host
