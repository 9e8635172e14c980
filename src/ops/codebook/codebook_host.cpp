// Distributes chunks among threads and processes them; the loops are in codebook_loops.h. encode()
// and decode() set strict floating point on the calling thread, the pool sets it on its threads.
#include "ops/codebook/codebook_host.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "host/flat.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "host/tree_sum.h"
#include "math/nibbles.h"
#include "ops/affine/ranges/keys.h"
#include "ops/codebook/codebook_search_host.h"

namespace planq::host {
namespace {

// The most elements that a loop keeps on its stack.
constexpr int kLoopBlock = 512;
// How many bytes ahead of a loop its input is prefetched.
constexpr std::int64_t kAheadBytes = 4 << 10;

// The loops of one instruction set for elements of type T: see codebook_loops.h.
template <class T>
struct CodebookLoops {
  using C = math::Compute<T>;
  void (*measure)(const T* x, std::int64_t n, std::int64_t block_size, bool finite, C* absmax);
  void (*divide)(const T* x, std::int64_t n, std::int64_t first, std::int64_t block_size,
                 const C* absmax, Quotient quotient, C* y);
  void (*find_nibbles)(const C* y, std::int64_t n, const NibbleSearch& search, std::uint8_t* codes);
  void (*find_bytes)(const C* y, std::int64_t n, const ByteSearch& search, std::uint8_t* codes);
  void (*pack)(const std::uint8_t* codes, std::int64_t count, NibbleOrder order,
               std::uint8_t* bytes);
  void (*look_up)(const std::uint8_t* codes, std::int64_t n, const float* values, C* to);
  void (*look_up_pairs)(const std::uint8_t* bytes, std::int64_t count, const float* values,
                        NibbleOrder order, C* to);
  void (*scale)(C* value, std::int64_t n, std::int64_t first, std::int64_t block_size,
                const C* absmax);
  void (*narrow)(const C* from, std::int64_t count, void* to);
};

}  // namespace
}  // namespace planq::host

#define PLANQ_LOOPS "ops/codebook/codebook_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {
namespace {

using math::Compute;

// The number of elements of a chunk when codes are decoded.
constexpr std::int64_t kChunk = 2048;
// The fewest elements that are worth waking a thread for.
constexpr std::int64_t kGrain = 1 << 15;
// Blocks up to this size stay in the L2 cache between measuring and encoding.
constexpr std::int64_t kNearBlock = 1 << 16;
// The most pieces that a block is cut into when threads measure it together.
constexpr std::int64_t kMaxPieces = 256;
// Results of at least this size do not fit into a cache, and are written with streaming stores.
constexpr std::int64_t kStreamBytes = 32 << 20;
// The fewest elements for which building buckets takes less time than it saves.
constexpr std::int64_t kWorthBuckets = 4096;

constexpr std::int64_t grain_of(std::int64_t elements) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(elements, 1));
}

template <class T>
const CodebookLoops<T>& codebook_loops() {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::kCodebookLoops<T>;
  if (level == Level::Avx2) return avx2::kCodebookLoops<T>;
#endif
  return baseline::kCodebookLoops<T>;
}

// ---- encoding ----------------------------------------------------------------------------------

template <class T, class Search>
class Encoder {
 public:
  using C = Compute<T>;
  static constexpr bool kFourBit = std::is_same_v<Search, NibbleSearch>;
  // The number of elements of a chunk. Its blocks are measured and encoded while they are in the L1
  // cache, and a copy of it is on the stack. 8-bit chunks are half as large, because their search
  // tables take as much memory. The number is even, so that two codes of one byte stay together. A
  // pair of blocks may be twice as long.
  static constexpr std::int64_t kMostChunk = (kFourBit ? 16 << 10 : 8 << 10) / sizeof(C);
  static constexpr std::int64_t kNearChunk = kMostChunk / 2;

  Encoder(const CodebookEncoding& encoding, const EncodingOperands<C>& operands,
          const Search& search, int threads)
      : encoding_(encoding),
        operands_(operands),
        search_(search),
        loops_(codebook_loops<T>()),
        threads_(std::max(threads, 1)),
        input_(encoding.shape, operands.input),
        output_(encoding.shape, operands.output),
        elements_(encoding.shape.elements()),
        size_(std::min(encoding.block_size, std::max<std::int64_t>(elements_, 1))),
        blocks_(groups_of(elements_, size_)),
        // If a block begins with the second code of a byte, the thread that encodes the block
        // before it encodes both.
        step_(kFourBit && size_ % 2 == 1 ? 2 : 1) {}

  void run() const {
    if (elements_ == 0) return;
    if (!operands_.measured) return known_blocks();
    if (size_ <= kNearChunk)
      return near_blocks(std::max(kNearChunk / size_ / step_ * step_, step_));
    if (size_ <= kNearBlock || blocks_ >= 4 * threads_) return near_blocks(step_);
    shared_blocks();
    known_blocks();
  }

 private:
  struct Uniforms {
    C uniform[kLoopBlock];
    std::uint8_t code[kMostChunk + 1];
  };
  struct Buffers {
    C y[kMostChunk];
    union {
      T stage[kMostChunk];  // elements, until they are quotients
      Uniforms found;       // codes, from then on
    };
  };

  const T* data() const { return static_cast<const T*>(operands_.input.data); }
  bool finite() const { return encoding_.nonfinite == NonFinite::Saturate; }

  // Absmax are given, or there are none. So chunks need not end where blocks do.
  void known_blocks() const {
    const std::int64_t chunks = groups_of(elements_, kMostChunk);
    parallel_for(threads_, chunks, grain_of(kMostChunk), [&](std::int64_t from, std::int64_t to) {
      Buffers buffers;
      encode_span(from * kMostChunk, std::min(to * kMostChunk, elements_), buffers);
    });
  }

  // Each thread measures and encodes `together` blocks at a time.
  void near_blocks(std::int64_t together) const {
    const std::int64_t length = together * size_;
    parallel_for(threads_, groups_of(blocks_, together), grain_of(length),
                 [&](std::int64_t from, std::int64_t to) {
                   Buffers buffers;
                   for (std::int64_t i = from; i < to; ++i) {
                     const auto [first, last] = block_span(i, length, elements_);
                     measure_span(first, last, buffers);
                     encode_span(first, last, buffers);
                   }
                 });
  }

  // Few blocks, too large to stay in a cache: all threads measure pieces of each.
  void shared_blocks() const {
    for (std::int64_t block = 0; block < blocks_; ++block) {
      const auto [first, last] = block_span(block, size_, elements_);
      const std::int64_t pieces = std::min(kMaxPieces, groups_of(last - first, kGrain));
      const std::int64_t length = groups_of(last - first, pieces);
      C found[kMaxPieces] = {};
      parallel_for(threads_, pieces, 1,
                   [&, begin = first, end = last](std::int64_t from, std::int64_t to) {
                     Buffers buffers;
                     for (std::int64_t i = from; i < to; ++i)
                       found[i] = largest(std::min(begin + i * length, end),
                                          std::min(begin + (i + 1) * length, end), buffers);
                   });
      operands_.absmax[block] = *std::max_element(found, found + pieces, smaller);
    }
  }

  // Compares magnitudes; a NaN is larger than all others.
  static bool smaller(C a, C b) { return math::magnitude_bits(a) < math::magnitude_bits(b); }

  // The largest magnitude of a part of a block.
  C largest(std::int64_t first, std::int64_t last, Buffers& buffers) const {
    C all = C{0};
    for (; first < last; first += kMostChunk) {
      const std::int64_t count = std::min(kMostChunk, last - first);
      C part;
      loops_.measure(input_.gathered(data(), first, count, buffers.stage), count, count, finite(),
                     &part);
      all = std::max(all, part, smaller);
    }
    return all;
  }

  // Measures the whole blocks of a span.
  void measure_span(std::int64_t first, std::int64_t last, Buffers& buffers) const {
    C* absmax = operands_.absmax + first / size_;
    if (last - first <= kMostChunk) {
      const T* x = input_.gathered(data(), first, last - first, buffers.stage);
      return loops_.measure(x, last - first, size_, finite(), absmax);
    }
    for (; first < last; first += size_)
      *absmax++ = largest(first, std::min(first + size_, last), buffers);
  }

  void encode_span(std::int64_t first, std::int64_t last, Buffers& buffers) const {
    for (; first < last; first += kMostChunk)
      encode_chunk(first, std::min(kMostChunk, last - first), buffers);
  }

  void encode_chunk(std::int64_t first, std::int64_t count, Buffers& buffers) const {
    const std::int64_t block = first / size_;
    const C* absmax = operands_.absmax == nullptr ? nullptr : operands_.absmax + block;
    loops_.divide(input_.gathered(data(), first, count, buffers.stage), count,
                  (block + 1) * size_ - first, size_, absmax, encoding_.quotient, buffers.y);
    auto* output = static_cast<std::uint8_t*>(operands_.output.data);
    if constexpr (kFourBit) {
      std::uint8_t* const codes = buffers.found.code;
      find(first, count, buffers, codes);
      codes[count] = 0;
      loops_.pack(codes, (count + 1) / 2, encoding_.nibble_order, output + first / 2);
    } else {
      const FlatSpans::Span span = output_.span_at(first);
      if (span.count >= count) return find(first, count, buffers, output + span.offset);
      find(first, count, buffers, buffers.found.code);
      output_.each_span(first, count,
                        [&](std::int64_t offset, std::int64_t done, std::int64_t taken) {
                          std::copy_n(buffers.found.code + done, taken, output + offset);
                        });
    }
  }

  void find(std::int64_t first, std::int64_t count, Buffers& buffers, std::uint8_t* codes) const {
    if (encoding_.rounding == Rounding::Stochastic) {
      encode_stochastically(first, count, buffers, codes);
    } else if constexpr (kFourBit) {
      loops_.find_nibbles(buffers.y, count, search_, codes);
    } else {
      loops_.find_bytes(buffers.y, count, search_, codes);
    }
  }

  void encode_stochastically(std::int64_t first, std::int64_t count, Buffers& buffers,
                             std::uint8_t* codes) const {
    for (std::int64_t i = 0; i < count; i += kLoopBlock) {
      const std::int64_t last = std::min<std::int64_t>(i + kLoopBlock, count);
      fill_uniforms(buffers.found.uniform, first + i, last - i, operands_.seed, operands_.offset);
      for (std::int64_t j = i; j < last; ++j)
        codes[j] =
            math::stochastic_code(buffers.y[j], *search_.table, buffers.found.uniform[j - i]);
    }
    if (operands_.absmax != nullptr) clear_empty(first, first + count, codes);
  }

  // Blocks whose absmax is 0 or NaN ignore random numbers: all of their codes are the one nearest
  // to +0.
  void clear_empty(std::int64_t first, std::int64_t last, std::uint8_t* codes) const {
    for (std::int64_t at = first; at < last;) {
      const std::int64_t block = at / size_, end = std::min((block + 1) * size_, last);
      if (math::block_division(operands_.absmax[block], encoding_.quotient).empty)
        std::fill(codes + (at - first), codes + (end - first), search_.table->zero);
      at = end;
    }
  }

  const CodebookEncoding& encoding_;
  const EncodingOperands<C>& operands_;
  const Search& search_;
  const CodebookLoops<T>& loops_;
  const int threads_;
  const FlatSpans input_, output_;
  const std::int64_t elements_, size_, blocks_, step_;
};

// Not inlined: otherwise loops over a table are unrolled in every caller, which takes half a minute
// of compile time and gains nothing.
[[gnu::noinline]] NibbleTable nibbles_of(Codebook codebook, const float* given,
                                         std::int64_t entries) {
  NibbleTable table = math::nibble_table(codebook);
  if (codebook == Codebook::Given) math::set_given(table, given, static_cast<int>(entries));
  return table;
}

// Not inlined, so that callers with other tables need no stack space for this table.
template <class T>
[[gnu::noinline]] void encode_given_bytes(const CodebookEncoding& encoding,
                                          const EncodingOperands<Compute<T>>& operands,
                                          int threads) {
  ByteTable table;
  math::set_given(table, operands.codebook, static_cast<int>(encoding.entries));
  std::optional<Buckets> buckets;
  if (encoding.shape.elements() >= kWorthBuckets) buckets.emplace(table, kGivenMantissa);
  const ByteSearch search{&table, buckets ? &*buckets : nullptr};
  Encoder<T, ByteSearch>(encoding, operands, search, threads).run();
}

}  // namespace

template <class T>
void encode(const CodebookEncoding& encoding, const EncodingOperands<Compute<T>>& operands,
            int threads) {
  if (is_four_bit(encoding.output_dtype)) {
    const NibbleTable table = nibbles_of(encoding.codebook, operands.codebook, encoding.entries);
    const NibbleSearch search(table);
    return Encoder<T, NibbleSearch>(encoding, operands, search, threads).run();
  }
  if (encoding.codebook == Codebook::Given)
    return encode_given_bytes<T>(encoding, operands, threads);
  const ByteSearch search{&math::kDynamicTable, &kDynamicBuckets};
  Encoder<T, ByteSearch>(encoding, operands, search, threads).run();
}

// ---- decoding ----------------------------------------------------------------------------------

namespace {

template <class T>
class Decoder {
 public:
  using C = Compute<T>;

  Decoder(const CodebookDecoding& decoding, const DecodingOperands& operands, const float* values,
          int threads)
      : decoding_(decoding),
        operands_(operands),
        values_(values),
        loops_(codebook_loops<T>()),
        threads_(std::max(threads, 1)),
        four_bit_(is_four_bit(decoding.input_dtype)),
        input_(decoding.shape, operands.input),
        output_(decoding.shape, operands.output),
        elements_(decoding.shape.elements()),
        size_(std::min(decoding.block_size, std::max<std::int64_t>(elements_, 1))),
        streaming_(elements_ * static_cast<std::int64_t>(sizeof(T)) >= kStreamBytes) {}

  void run() const {
    const std::int64_t chunks = groups_of(elements_, kChunk);
    parallel_for(threads_, chunks, grain_of(kChunk), [&](std::int64_t from, std::int64_t to) {
      Buffers buffers;
      for (std::int64_t i = from; i < to; ++i)
        decode_chunk(i * kChunk, std::min(kChunk, elements_ - i * kChunk), buffers);
      if (streaming_) stream_fence();
    });
  }

 private:
  struct Buffers {
    std::uint8_t stage[kChunk];
    C value[kChunk];
    union {
      C absmax[kChunk];   // until values are scaled
      T element[kChunk];  // from then on
    };
  };

  void decode_chunk(std::int64_t first, std::int64_t count, Buffers& buffers) const {
    const auto* codes = static_cast<const std::uint8_t*>(operands_.input.data);
    if (four_bit_)
      loops_.look_up_pairs(codes + first / 2, (count + 1) / 2, values_, decoding_.nibble_order,
                           buffers.value);
    else
      loops_.look_up(input_.gathered(codes, first, count, buffers.stage), count, values_,
                     buffers.value);
    if (operands_.statistics.absmax != nullptr) {
      const std::int64_t block = first / size_;
      const std::int64_t blocks = (first + count - 1) / size_ + 1 - block;
      for (std::int64_t i = 0; i < blocks; ++i)
        buffers.absmax[i] = operands_.statistics.at<C>(block + i);
      loops_.scale(buffers.value, count, (block + 1) * size_ - first, size_, buffers.absmax);
    }
    store(first, count, buffers);
  }

  void store(std::int64_t first, std::int64_t count, Buffers& buffers) const {
    T* output = static_cast<T*>(operands_.output.data);
    if (streaming_) loops_.narrow(buffers.value, count, buffers.element);
    output_.each_span(first, count,
                      [&](std::int64_t offset, std::int64_t done, std::int64_t taken) {
                        if (streaming_)
                          stream_copy(output + offset, buffers.element + done,
                                      static_cast<std::size_t>(taken) * sizeof(T));
                        else
                          loops_.narrow(buffers.value + done, taken, output + offset);
                      });
  }

  const CodebookDecoding& decoding_;
  const DecodingOperands& operands_;
  const float* const values_;
  const CodebookLoops<T>& loops_;
  const int threads_;
  const bool four_bit_;
  const FlatSpans input_, output_;
  const std::int64_t elements_, size_;
  const bool streaming_;
};

}  // namespace

template <class T>
void decode(const CodebookDecoding& decoding, const DecodingOperands& operands, int threads) {
  if (is_four_bit(decoding.input_dtype)) {
    const NibbleTable table = nibbles_of(decoding.codebook, operands.codebook, decoding.entries);
    return Decoder<T>(decoding, operands, table.value, threads).run();
  }
  if (decoding.codebook != Codebook::Given)
    return Decoder<T>(decoding, operands, math::kDynamicTable.value, threads).run();
  ByteTable table;
  math::set_given(table, operands.codebook, static_cast<int>(decoding.entries));
  Decoder<T>(decoding, operands, table.value, threads).run();
}

// ---- means -------------------------------------------------------------------------------------

template <class C>
C tree_mean(const C* values, std::int64_t count, C* sums, int threads) {
  const std::int64_t leaves = groups_of(count, math::kSumLeaf);
  parallel_for(threads, leaves, grain_of(math::kSumLeaf), [&](std::int64_t from, std::int64_t to) {
    C terms[math::kSumLeaf];
    for (std::int64_t leaf = from; leaf < to; ++leaf) {
      const auto [first, last] = block_span(leaf, math::kSumLeaf, count);
      std::copy(values + first, values + last, terms);
      sums[leaf] = tree_sum_over(terms, last - first);
    }
  });
  return math::mean_of(tree_sum_over(sums, leaves), count);
}

#define PLANQ_CODEBOOK(T)                                                                     \
  template void encode<T>(const CodebookEncoding&, const EncodingOperands<Compute<T>>&, int); \
  template void decode<T>(const CodebookDecoding&, const DecodingOperands&, int);
PLANQ_CODEBOOK(math::Half)
PLANQ_CODEBOOK(math::Bfloat16)
PLANQ_CODEBOOK(float)
PLANQ_CODEBOOK(double)
#undef PLANQ_CODEBOOK
template float tree_mean<float>(const float*, std::int64_t, float*, int);
template double tree_mean<double>(const double*, std::int64_t, double*, int);

}  // namespace planq::host
