// reorder_mixed_dtype_weight on the host: blocks of 64 x 64 elements, gathered into the words of
// their columns and written as runs, or the other way.

#include <cstdint>
#include <cstring>
#include <string_view>

#include "host/parallel.h"
#include "ops/reorder_mixed_dtype_weight/desc.h"
#include "ops/reorder_mixed_dtype_weight/layout.h"

namespace planq::reorder_mixed_dtype_weight {
namespace {

using std::int64_t;
using std::uint32_t;
using std::uint8_t;

// Blocks that are worth waking a thread for.
constexpr int64_t kGrain = 16;

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

  // The matrix is transposed: its rows are the weight's columns.
  void read_columns(const uint8_t* matrix, int64_t stride) {
    for (int column = 0; column < kChunk; ++column)
      for (int vector = 0; vector < L::kWords / 4; ++vector)
        order(matrix + column * stride + 16 * vector, words_[column] + 4 * vector);
  }
  void write_columns(uint8_t* matrix, int64_t stride) const {
    for (int column = 0; column < kChunk; ++column)
      for (int vector = 0; vector < L::kWords / 4; ++vector)
        reorder(words_[column] + 4 * vector, matrix + column * stride + 16 * vector);
  }

  // One column as it is stored.
  void read_run(int column, const uint8_t* run) {
    std::memcpy(words_[column], run, L::kRunBytes);
    for (uint32_t& word : words_[column]) word ^= L::kSigns;
  }
  void write_run(int column, uint8_t* run) const {
    uint32_t words[L::kWords];
    for (int i = 0; i < L::kWords; ++i) words[i] = words_[column][i] ^ L::kSigns;
    std::memcpy(run, words, L::kRunBytes);
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
  // One row of them back.
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

  // 16 bytes of consecutive elements of a column, as the four words that hold them, and back.
  static void order(const uint8_t* elements, uint32_t* words) {
    uint8_t bytes[16];
    if constexpr (L::kPerByte == 1) {
      for (int i = 0; i < 8; ++i) {
        bytes[2 * i] = elements[i];
        bytes[2 * i + 1] = elements[8 + i];
      }
    } else {
      for (int i = 0; i < 16; ++i) bytes[i] = elements[i % 4 * 4 + i / 4];
    }
    std::memcpy(words, bytes, sizeof bytes);
    if constexpr (L::kPerByte == 2)
      for (int i = 0; i < 4; ++i) words[i] = inner_bytes_swapped(inner_nibbles_swapped(words[i]));
  }
  static void reorder(const uint32_t* words, uint8_t* elements) {
    uint32_t ordered[4];
    uint8_t bytes[16];
    for (int i = 0; i < 4; ++i)
      ordered[i] =
          L::kPerByte == 1 ? words[i] : inner_nibbles_swapped(inner_bytes_swapped(words[i]));
    std::memcpy(bytes, ordered, sizeof bytes);
    if constexpr (L::kPerByte == 1) {
      for (int i = 0; i < 8; ++i) {
        elements[i] = bytes[2 * i];
        elements[8 + i] = bytes[2 * i + 1];
      }
    } else {
      for (int i = 0; i < 16; ++i) elements[i % 4 * 4 + i / 4] = bytes[i];
    }
  }
  static uint32_t inner_bytes_swapped(uint32_t word) {
    return (word & 0xFF0000FFu) | (word & 0xFF00u) << 8 | (word >> 8 & 0xFF00u);
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
        blocks_across_(weight_.columns / kChunk),
        row_bytes_(weight_.columns / L::kPerByte) {}

  void run(int threads) const {
    if (weight_.empty()) return;
    host::parallel_for(threads, chunks_ * blocks_across_, kGrain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) run_block(i / blocks_across_, i % blocks_across_);
    });
  }

 private:
  using L = Layout<kDType>;

  void run_block(int64_t chunk, int64_t across) const {
    Block<kDType> block;
    const int64_t stride = weight_.matrix.strides[0];
    uint8_t* matrix = static_cast<uint8_t*>(weight_.matrix.data) +
                      (weight_.transposed ? across * kChunk * stride + chunk * L::kRunBytes
                                          : chunk * kChunk * stride + across * L::kRunBytes);
    if (inverse_) {
      for (int i = 0; i < kChunk; ++i) block.read_run(i, run_of(across * kChunk + i, chunk));
      weight_.transposed ? block.write_columns(matrix, stride) : block.write_rows(matrix, stride);
    } else {
      weight_.transposed ? block.read_columns(matrix, stride) : block.read_rows(matrix, stride);
      for (int i = 0; i < kChunk; ++i) block.write_run(i, run_of(across * kChunk + i, chunk));
    }
  }
  // Where a column's run lies. Rows of the operand are whole runs, and may be apart.
  uint8_t* run_of(int64_t column, int64_t chunk) const {
    const int64_t line = column / L::kColumns * chunks_ + chunk;
    const int64_t byte = line * kLineBytes + column % L::kColumns * L::kRunBytes;
    const int64_t row = byte / row_bytes_;
    return static_cast<uint8_t*>(weight_.reordered.data) + row * weight_.reordered.strides[0] +
           (byte - row * row_bytes_);
  }

  Weight weight_;
  bool inverse_;
  int64_t chunks_, blocks_across_, row_bytes_;
};

Status prepare(const Descriptor& descriptor, const Device&, State& state) {
  state.emplace<Fields>() = descriptor.as<Fields>();
  return Status::success();
}

template <DType kDType>
Status launch(const State& state, const Operands& operands, Workspace, const Stream& stream) {
  Launch<kDType>(state.as<Fields>(), operands).run(stream.threads);
  return Status::success();
}

template <DType kDType>
constexpr Kernel row(std::string_view sku) {
  return {.sku = sku,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kDType>,
          .workspace = no_workspace,
          .prepare = prepare,
          .launch = launch<kDType>};
}

constexpr Kernel kRows[] = {
    row<DType::Int8>("reorder_mixed_dtype_weight/host/tiles/s8_u8"),
    row<DType::Int4>("reorder_mixed_dtype_weight/host/tiles/s4_u8"),
};

}  // namespace

extern const std::span<const Kernel> kHostRows;
const std::span<const Kernel> kHostRows{kRows};

}  // namespace planq::reorder_mixed_dtype_weight
