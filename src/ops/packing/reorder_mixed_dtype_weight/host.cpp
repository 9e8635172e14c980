// reorder_mixed_dtype_weight on the host: blocks of 64 x 64 elements, whose columns are gathered
// into words and written span by span, or the inverse. A transposed matrix has the elements of a
// column side by side, so that a span is made by permuting 16 bytes at a time.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "host/bind.h"
#include "host/thread_pool.h"
#include "ops/packing/reorder_mixed_dtype_weight/desc.h"

namespace planq::reorder_mixed_dtype_weight {
namespace {

using std::int64_t;
using std::uint32_t;
using std::uint8_t;

// Blocks that are worth waking a thread for.
constexpr int64_t kGrain = 16;
// Bytes of a transposed matrix that are worth waking a thread for.
constexpr int64_t kGrainBytes = 1 << 16;

// The span of a column whose elements are consecutive in the matrix.
template <DType kDType>
class Span {
 public:
  static void order(const uint8_t* elements, uint8_t* span) {
    for (int i = 0; i < L::kSpanBytes; i += 16) order_vector(elements + i, span + i);
  }
  static void reorder(const uint8_t* span, uint8_t* elements) {
    for (int i = 0; i < L::kSpanBytes; i += 16) reorder_vector(span + i, elements + i);
  }

 private:
  using L = Layout<kDType>;

  static void order_vector(const uint8_t* elements, uint8_t* span) {
    Words words;
    std::memcpy(&words, elements, sizeof words);
    words = zipped(words);
    if constexpr (L::kPerByte == 2)
      words = inner_bytes_swapped(inner_nibbles_swapped(zipped(words)));
    words ^= L::kSigns;
    std::memcpy(span, &words, sizeof words);
  }
  static void reorder_vector(const uint8_t* span, uint8_t* elements) {
    Words words;
    std::memcpy(&words, span, sizeof words);
    words ^= L::kSigns;
    if constexpr (L::kPerByte == 1) {
      words = unzipped(words);
    } else {
      // Zipping twice transposes 4 x 4 bytes, which is its own inverse.
      words = zipped(zipped(inner_nibbles_swapped(inner_bytes_swapped(words))));
    }
    std::memcpy(elements, &words, sizeof words);
  }

  typedef uint32_t Words __attribute__((vector_size(16)));
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  typedef std::uint64_t Halves __attribute__((vector_size(16)));

  // A permutation of the 32 bytes of both.
  template <int... kPlace>
  static Words chosen(Bytes a, Bytes b) {
#if defined(__clang__)
    return reinterpret_cast<Words>(__builtin_shufflevector(a, b, kPlace...));
#else
    return reinterpret_cast<Words>(__builtin_shuffle(a, b, Bytes{kPlace...}));
#endif
  }
  // Interleaves the bytes of the two halves; unzipped() is the inverse.
  static Words zipped(Words v) {
    const auto halves = reinterpret_cast<Halves>(v);
    return chosen<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(
        reinterpret_cast<Bytes>(v), reinterpret_cast<Bytes>(Halves{halves[1], 0}));
  }
  static Words unzipped(Words v) {
    return chosen<0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30>(
        reinterpret_cast<Bytes>(v), reinterpret_cast<Bytes>(v >> 8));
  }
  static Words inner_bytes_swapped(Words v) {
    return (v & 0xFF0000FFu) | (v & 0xFF00u) << 8 | (v >> 8 & 0xFF00u);
  }
};

// 64 rows of 64 columns, as the words of the columns.
template <DType kDType>
class Block {
 public:
  // The matrix has a chunk of 64 rows, `stride` bytes apart.
  void read_rows(const uint8_t* matrix, int64_t stride) {
    for (int word = 0; word < L::kWords; ++word) {
      const uint8_t* rows[L::kLanes];
      for (int lane = 0; lane < L::kLanes; ++lane)
        rows[lane] = matrix + L::row(word, lane) * stride;
      uint32_t words[kChunk];
      gather(rows, words);
      for (int column = 0; column < kChunk; ++column) words_[column][word] = words[column];
    }
  }
  void write_rows(uint8_t* matrix, int64_t stride) const {
    for (int word = 0; word < L::kWords; ++word) {
      uint32_t words[kChunk];
      for (int column = 0; column < kChunk; ++column) words[column] = words_[column][word];
      for (int lane = 0; lane < L::kLanes; ++lane)
        scatter(words, lane, matrix + L::row(word, lane) * stride);
    }
  }

  // One column as it is stored.
  void read_span(int column, const uint8_t* span) {
    std::memcpy(words_[column], span, L::kSpanBytes);
    for (uint32_t& word : words_[column]) word ^= L::kSigns;
  }
  void write_span(int column, uint8_t* span) const {
    uint32_t words[L::kWords];
    for (int i = 0; i < L::kWords; ++i) words[i] = words_[column][i] ^ L::kSigns;
    std::memcpy(span, words, L::kSpanBytes);
  }

 private:
  using L = Layout<kDType>;

  // The same word of all columns, out of the rows of its lanes.
  static void gather(const uint8_t* const (&rows)[L::kLanes], uint32_t (&words)[kChunk]) {
    for (int i = 0; i < kChunk / L::kPerByte; ++i) {
      uint32_t first = 0, second = 0;
      for (int lane = 0; lane < L::kLanes; ++lane) {
        const uint32_t byte = rows[lane][i];
        first |= (L::kPerByte == 2 ? byte & 15 : byte) << L::kBits * lane;
        second |= byte >> 4 << L::kBits * lane;
      }
      words[L::kPerByte * i] = first;
      if constexpr (L::kPerByte == 2) words[2 * i + 1] = second;
    }
  }
  // Writes one row back.
  static void scatter(const uint32_t (&words)[kChunk], int lane, uint8_t* row) {
    for (int i = 0; i < kChunk / L::kPerByte; ++i) {
      const uint32_t first = words[L::kPerByte * i] >> L::kBits * lane;
      if constexpr (L::kPerByte == 2) {
        const uint32_t second = words[2 * i + 1] >> L::kBits * lane;
        row[i] = static_cast<uint8_t>((first & 15) | second << 4);
      } else {
        row[i] = static_cast<uint8_t>(first);
      }
    }
  }

  uint32_t words_[kChunk][L::kWords];
};

template <DType kDType>
class Launch {
 public:
  Launch(const Fields& fields, const Operands& operands)
      : weight_(fields, operands),
        inverse_(fields.inverse),
        chunks_(weight_.rows / kChunk),
        across_(weight_.columns / kChunk),
        row_bytes_(weight_.columns / L::kPerByte) {}

  void run(int threads) const {
    if (weight_.empty()) return;
    if (weight_.transposed) {
      const int64_t columns = std::max<int64_t>(1, kGrainBytes / (chunks_ * kLineBytes));
      host::parallel_for(threads, weight_.columns / L::kColumns, columns,
                         [&](int64_t first, int64_t last) { run_columns(first, last); });
      return;
    }
    host::parallel_for(threads, chunks_ * across_, kGrain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) run_block(i / across_, i % across_);
    });
  }

 private:
  using L = Layout<kDType>;

  uint8_t* matrix() const { return static_cast<uint8_t*>(weight_.matrix.data); }

  // Columns that share lines, which are rows of the matrix here, chunk by chunk.
  void run_columns(int64_t first, int64_t last) const {
    const int64_t stride = weight_.matrix.strides[0];
    for (int64_t group = first; group < last; ++group)
      for (int64_t chunk = 0; chunk < chunks_; ++chunk)
        for (int64_t column = group * L::kColumns; column < (group + 1) * L::kColumns; ++column) {
          uint8_t* elements = matrix() + column * stride + chunk * L::kSpanBytes;
          uint8_t* span = span_of(column, chunk);
          inverse_ ? Span<kDType>::reorder(span, elements) : Span<kDType>::order(elements, span);
        }
  }
  void run_block(int64_t chunk, int64_t across) const {
    Block<kDType> block;
    const int64_t stride = weight_.matrix.strides[0];
    uint8_t* rows = matrix() + chunk * kChunk * stride + across * L::kSpanBytes;
    if (inverse_) {
      for (int i = 0; i < kChunk; ++i) block.read_span(i, span_of(across * kChunk + i, chunk));
      block.write_rows(rows, stride);
    } else {
      block.read_rows(rows, stride);
      for (int i = 0; i < kChunk; ++i) block.write_span(i, span_of(across * kChunk + i, chunk));
    }
  }
  // Where a column's span lies. Rows of the operand are whole spans, and may be apart.
  uint8_t* span_of(int64_t column, int64_t chunk) const {
    const int64_t line = column / L::kColumns * chunks_ + chunk;
    const int64_t byte = line * kLineBytes + column % L::kColumns * L::kSpanBytes;
    uint8_t* start = static_cast<uint8_t*>(weight_.reordered.data);
    const int64_t stride = weight_.reordered.strides[0];
    if (stride == row_bytes_) return start + byte;
    const int64_t row = byte / row_bytes_;
    return start + row * stride + (byte - row * row_bytes_);
  }

  Weight weight_;
  bool inverse_;
  int64_t chunks_, across_, row_bytes_;
};

template <DType kDType>
Status compute(const Call& call, const Stream& stream) {
  Launch<kDType>(call.fields<Fields>(), call.operands).run(stream.threads);
  return Status::success();
}

template <DType kDType>
constexpr Kernel make_kernel() {
  return {.op = "reorder_mixed_dtype_weight",
          .body = "tiles",
          .dtypes = kDTypes<kDType, DType::UInt8>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kDType>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kDType>>};
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Int8>(),
    make_kernel<DType::Int4>(),
};

}  // namespace

}  // namespace planq::reorder_mixed_dtype_weight

PLANQ_KERNELS(reorder_mixed_dtype_weight, host, kKernels);
