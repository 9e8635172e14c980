// Loops over the elements and codes of a chunk, for one instruction set: see codebook_host.cpp. No
// include guard: see host/instruction_sets.h.

#include "host/convert.h"
#include "ops/affine/ranges/loops.h"
#include "ops/codebook/pair_loops.h"

namespace planq::host::PLANQ_LEVEL {

// Not std::min: the linker keeps one copy of it, which may use instructions that others lack.
inline std::int64_t at_most(std::int64_t limit, std::int64_t count) {
  return count < limit ? count : limit;
}

// ---- from elements to quotients ----------------------------------------------------------------

// The stored absmax of each block of [x, x + n). If `finite`, NaN and infinities are left out, and
// a block with nothing else has 0.
template <class T>
void measure(const T* x, std::int64_t n, std::int64_t block_size, bool finite, Compute<T>* absmax) {
  for (std::int64_t i = 0; i < n; i += block_size, ++absmax) {
    const std::int64_t count = at_most(block_size, n - i);
    const auto keys = finite ? row_keys<T, false, true>(x + i, count, kAheadBytes)
                             : row_keys<T, false, false>(x + i, count, kAheadBytes);
    *absmax =
        keys.high < 0 ? Compute<T>{0} : math::stored_absmax(math::widen(bit_cast<T>(keys.high)));
  }
}

template <bool kDivide, class T>
inline void quotients(const T* __restrict x, std::int64_t n, Compute<T> by,
                      Compute<T>* __restrict y) {
  for (std::int64_t i = 0; i < n; ++i) {
    const Compute<T> value = math::widen(x[i]);
    const Compute<T> quotient = kDivide ? value / by : value * by;
    y[i] = quotient == quotient ? quotient : Compute<T>{0};
  }
}

// Quotients of the elements of one block. A NaN becomes +0, as it takes the code of +0.
template <class T>
inline void divide_block(const T* x, std::int64_t n, const math::BlockDivision<Compute<T>>& block,
                         Compute<T>* y) {
  using C = Compute<T>;
  if (block.empty) {
    std::memset(y, 0, static_cast<std::size_t>(n) * sizeof(C));
  } else if constexpr (std::is_same_v<T, math::Half>) {
    C wide[kLoopBlock];
    for (std::int64_t i = 0; i < n; i += kLoopBlock) {
      const std::int64_t count = at_most(kLoopBlock, n - i);
      widen<T>(x + i, count, wide);
      block.divides ? quotients<true>(wide, count, block.absmax, y + i)
                    : quotients<false>(wide, count, block.inverse, y + i);
    }
  } else {
    block.divides ? quotients<true>(x, n, block.absmax, y)
                  : quotients<false>(x, n, block.inverse, y);
  }
}

// Quotients of consecutive blocks, of which the first has `first` elements.
template <class T>
void divide(const T* x, std::int64_t n, std::int64_t first, std::int64_t block_size,
            const Compute<T>* absmax, Quotient quotient, Compute<T>* y) {
  if (absmax == nullptr) return divide_block(x, n, math::BlockDivision<Compute<T>>{}, y);
  for (std::int64_t i = 0, count = first; i < n; i += count, count = block_size) {
    count = at_most(count, n - i);
    divide_block(x + i, count, math::block_division(*absmax++, quotient), y + i);
  }
}

// ---- from quotients to codes -------------------------------------------------------------------

#if PLANQ_SIMD_X86 && PLANQ_VECTOR_BYTES >= 32
// The low bytes of 16 integers.
inline __m128i low_bytes(__m256i first, __m256i second) {
  const __m256i clean = _mm256_set1_epi32(0xFF);
  const __m256i words = _mm256_permute4x64_epi64(
      _mm256_packus_epi32(_mm256_and_si256(first, clean), _mm256_and_si256(second, clean)), 0xD8);
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
#endif

// Codes of the 16 quotients at y.
#if PLANQ_SIMD_X86 && PLANQ_VECTOR_BYTES == 64
struct NibbleFinder {
  __m512 node;
  __m512i code;

  explicit NibbleFinder(const NibbleSearch& search)
      : node(_mm512_load_ps(search.node)), code(_mm512_load_si512(search.code)) {}

  void operator()(const float* y, std::uint8_t* codes) const {
    const __m512 value = _mm512_loadu_ps(y);
    const __m512i one = _mm512_set1_epi32(1);
    __m512i at = one;
    for (int level = 0; level < 4; ++level) {
      const __mmask16 above =
          _mm512_cmp_ps_mask(value, _mm512_maskz_permutexvar_ps(kAll, at, node), _CMP_GT_OQ);
      at = _mm512_add_epi32(at, at);
      at = _mm512_mask_or_epi32(at, above, at, one);
    }
    // The permutation uses the low four bits of the leaf's number, which are the rank.
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(codes),
        _mm512_maskz_cvtepi32_epi8(kAll, _mm512_maskz_permutexvar_epi32(kAll, at, code)));
  }
};
#elif PLANQ_SIMD_X86 && PLANQ_VECTOR_BYTES == 32
struct NibbleFinder {
  __m256 upper, lower;
  __m128i code;

  explicit NibbleFinder(const NibbleSearch& search)
      : upper(_mm256_load_ps(search.node)), lower(_mm256_load_ps(search.node + 8)) {
    std::uint8_t bytes[16];
    for (int rank = 0; rank < 16; ++rank)
      bytes[rank] = static_cast<std::uint8_t>(search.code[rank]);
    std::memcpy(&code, bytes, sizeof code);
  }

  __m256i leaves(const float* y) const {
    const __m256 value = _mm256_loadu_ps(y);
    __m256i at = _mm256_set1_epi32(1);
    for (int level = 0; level < 4; ++level) {
      const __m256 node = _mm256_permutevar8x32_ps(level < 3 ? upper : lower, at);
      const __m256i above = _mm256_castps_si256(_mm256_cmp_ps(value, node, _CMP_GT_OQ));
      at = _mm256_sub_epi32(_mm256_add_epi32(at, at), above);
    }
    return at;
  }
  void operator()(const float* y, std::uint8_t* codes) const {
    const __m128i bytes = low_bytes(leaves(y), leaves(y + 8));
    // The shuffle uses the low four bits of the leaf's number, which are the rank.
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm_shuffle_epi8(code, bytes));
  }
};
#else
struct NibbleFinder {
  const NibbleTable& table;

  explicit NibbleFinder(const NibbleSearch& search) : table(*search.table) {}

  void operator()(const float* y, std::uint8_t* codes) const {
    std::int32_t rank[16] = {};
    for (int t = 0; t < 15; ++t)
      for (int i = 0; i < 16; ++i) rank[i] += y[i] > table.threshold[t];
    for (int i = 0; i < 16; ++i) codes[i] = table.code[rank[i]];
  }
};
#endif

// Calls a finder for 16 quotients at a time; a remainder is copied to a buffer of 16.
template <class Finder>
inline void in_sixteens(Finder& finder, const float* y, std::int64_t n, std::uint8_t* codes) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) finder(y + i, codes + i);
  if (i == n) return;
  float rest[16] = {};
  std::uint8_t found[16];
  std::memcpy(rest, y + i, static_cast<std::size_t>(n - i) * sizeof(float));
  finder(rest, found);
  std::memcpy(codes + i, found, static_cast<std::size_t>(n - i));
}

inline void find(const float* y, std::int64_t n, const NibbleSearch& search, std::uint8_t* codes) {
  NibbleFinder finder(search);
  in_sixteens(finder, y, n, codes);
}

#if PLANQ_SIMD_X86 && PLANQ_VECTOR_BYTES >= 32
// Finds codes by buckets, 16 at a time, and records whether a bucket among them was marked.
struct BucketFinder {
  const int* entries;
  __m256i lowest, highest, base, rest, marks = _mm256_setzero_si256();
  __m128i shift;

  explicit BucketFinder(const Buckets& buckets)
      : entries(reinterpret_cast<const int*>(buckets.entry + buckets.half)),
        lowest(_mm256_set1_epi32(buckets.lowest)),
        highest(_mm256_set1_epi32(buckets.highest)),
        base(_mm256_set1_epi32(buckets.base)),
        rest(_mm256_set1_epi32((1 << buckets.shift) - 1)),
        shift(_mm_cvtsi32_si128(buckets.shift)) {}

  __m256i found(const float* y) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(y));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
    const __m256i inside = _mm256_min_epi32(_mm256_max_epi32(magnitude, lowest), highest);
    const __m256i place =
        _mm256_xor_si256(_mm256_sub_epi32(inside, base), _mm256_srai_epi32(bits, 31));
    const __m256i entry = _mm256_i32gather_epi32(entries, _mm256_sra_epi32(place, shift), 4);
    marks = _mm256_or_si256(marks, entry);
    return _mm256_srl_epi32(_mm256_add_epi32(entry, _mm256_and_si256(place, rest)), shift);
  }
  void operator()(const float* y, std::uint8_t* codes) {
    const __m256i first = found(y);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), low_bytes(first, found(y + 8)));
  }
  bool marked() const { return _mm256_movemask_ps(_mm256_castsi256_ps(marks)) != 0; }
};
#else
struct BucketFinder {
  const Buckets& buckets;
  std::uint32_t marks = 0;

  explicit BucketFinder(const Buckets& of) : buckets(of) {}

  void operator()(const float* y, std::uint8_t* codes) {
    const std::uint32_t rest = (std::uint32_t{1} << buckets.shift) - 1;
    for (int i = 0; i < 16; ++i) {
      const std::int32_t place = buckets.place(y[i]);
      const std::uint32_t entry = buckets.entry_of(y[i]);
      marks |= entry;
      codes[i] = static_cast<std::uint8_t>((entry + (static_cast<std::uint32_t>(place) & rest)) >>
                                           buckets.shift);
    }
  }
  bool marked() const { return marks & Buckets::kMarked; }
};
#endif

// Finds ranks by buckets, or by bisection if there are no buckets or a bucket is marked.
inline void find_ranks(const float* y, std::int64_t n, const ByteSearch& search,
                       std::uint8_t* ranks) {
  const bool all = search.buckets == nullptr;
  if (!all) {
    BucketFinder finder(*search.buckets);
    in_sixteens(finder, y, n, ranks);
    if (!finder.marked()) return;
  }
  for (std::int64_t i = 0; i < n; ++i)
    if (all || search.buckets->entry_of(y[i]) & Buckets::kMarked)
      ranks[i] = static_cast<std::uint8_t>(math::rank_of(y[i], *search.table));
}
inline void find(const float* y, std::int64_t n, const ByteSearch& search, std::uint8_t* codes) {
  find_ranks(y, n, search, codes);
  if (!search.table->zeros_swapped) return;
  for (std::int64_t i = 0; i < n; ++i) codes[i] = search.table->code[codes[i]];
}

// Nearest codes, a byte each. Searches compare floats, so doubles are rounded first.
template <class C, class Search>
void find_codes(const C* y, std::int64_t n, const Search& search, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < n; i += kLoopBlock) {
    const std::int64_t count = at_most(kLoopBlock, n - i);
    if constexpr (std::is_same_v<C, float>) {
      find(y + i, count, search, codes + i);
    } else {
      float near[kLoopBlock];
      for (std::int64_t j = 0; j < count; ++j)
        near[j] = math::searched(y[i + j], search.table->mirrored);
      find(near, count, search, codes + i);
    }
  }
}

// ---- codes in bytes ----------------------------------------------------------------------------

// Packs pairs of neighbouring codes into one byte each.
template <NibbleOrder kOrder>
inline void pack_pairs(const std::uint8_t* __restrict codes, std::int64_t count,
                       std::uint8_t* __restrict bytes) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t both;
    std::memcpy(&both, codes + 2 * i, sizeof both);
    bytes[i] = static_cast<std::uint8_t>(math::neighbours_joined(both, kOrder));
  }
}
inline void pack(const std::uint8_t* codes, std::int64_t count, NibbleOrder order,
                 std::uint8_t* bytes) {
  order == NibbleOrder::LowFirst ? pack_pairs<NibbleOrder::LowFirst>(codes, count, bytes)
                                 : pack_pairs<NibbleOrder::HighFirst>(codes, count, bytes);
}

// ---- from codes to elements --------------------------------------------------------------------

// Looks up the values of 8-bit codes.
template <class C>
void look_up(const std::uint8_t* __restrict codes, std::int64_t n, const float* __restrict values,
             C* __restrict to) {
  std::int64_t i = 0;
#if PLANQ_SIMD_X86 && PLANQ_VECTOR_BYTES >= 32
  if constexpr (std::is_same_v<C, float>) {
    for (; i + 8 <= n; i += 8) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i));
      _mm256_storeu_ps(to + i, _mm256_i32gather_ps(values, _mm256_cvtepu8_epi32(bytes), 4));
    }
  }
#endif
  for (; i < n; ++i) to[i] = static_cast<C>(values[codes[i]]);
}

// Multiplies values by the absmax of their blocks, of which the first has `first` elements.
template <class C>
void scale(C* __restrict value, std::int64_t n, std::int64_t first, std::int64_t block_size,
           const C* __restrict absmax) {
  for (std::int64_t i = 0, count = first; i < n; i += count, count = block_size) {
    count = at_most(count, n - i);
    const C by = *absmax++;
    for (std::int64_t j = i; j < i + count; ++j) value[j] *= by;
  }
}

template <class T>
inline constexpr CodebookLoops<T> kCodebookLoops = {
    measure<T>,
    divide<T>,
    find_codes<Compute<T>, NibbleSearch>,
    find_codes<Compute<T>, ByteSearch>,
    pack,
    look_up<Compute<T>>,
    look_up_pairs<Compute<T>>,
    scale<Compute<T>>,
    narrow<T>,
};

}  // namespace planq::host::PLANQ_LEVEL
