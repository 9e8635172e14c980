// pack_weight_4bit on the host: tile by tile, two rows at a time, four bytes at once.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "host/bind.h"
#include "host/thread_pool.h"
#include "math/nibbles.h"
#include "ops/packing/fragment_order.h"
#include "ops/packing/pack_weight_4bit/desc.h"

namespace planq::pack_weight_4bit {
namespace {

using std::int64_t;
using std::uint32_t;
using std::uint8_t;

constexpr int kTile = FragmentOrder::kTile;
// Tiles that are worth waking a thread for.
constexpr int64_t kGrain = 8;

// Bytes of a tile's row, and the bytes that four threads have of two of them.
constexpr int kLine = kTile / 2, kQuad = 64;
using Line = uint8_t[kLine];

uint32_t load(const uint8_t* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}
void store(uint8_t* to, uint32_t word) { std::memcpy(to, &word, sizeof word); }

// Byte i of word j becomes byte j of word i.
void transpose_bytes(uint32_t (&words)[4]) {
  for (int i = 0; i < 2; ++i) {
    const uint32_t a = words[i], b = words[i + 2];
    words[i] = (a & 0xFFFF) | b << 16;
    words[i + 2] = a >> 16 | (b & 0xFFFF0000);
  }
  for (int i = 0; i < 4; i += 2) {
    const uint32_t a = words[i], b = words[i + 1];
    words[i] = (a & 0x00FF00FF) | (b & 0x00FF00FF) << 8;
    words[i + 1] = (a >> 8 & 0x00FF00FF) | (b & 0xFF00FF00);
  }
}

// Two rows, 8 apart, low nibbles first, are all that four threads have. Of a step of 16 terms a row
// has two words, with a byte for each thread; a thread has a word, whose bytes have the same
// nibbles of both rows.
void pack_lines(const Line& first, const Line& second, uint8_t* threads) {
  for (int step = 0; step < 4; ++step) {
    uint32_t words[4];
    for (int half = 0; half < 2; ++half) {
      const uint32_t a = load(first + 8 * step + 4 * half);
      const uint32_t b = load(second + 8 * step + 4 * half);
      words[half] = math::nibbles_joined(a, b);
      words[half + 2] = math::nibbles_joined(a >> 4, b >> 4);
    }
    transpose_bytes(words);
    for (int thread = 0; thread < 4; ++thread)
      store(threads + 16 * thread + 4 * step, words[thread]);
  }
}
void restore_lines(const uint8_t* threads, Line& first, Line& second) {
  for (int step = 0; step < 4; ++step) {
    uint32_t words[4];
    for (int thread = 0; thread < 4; ++thread)
      words[thread] = load(threads + 16 * thread + 4 * step);
    transpose_bytes(words);
    for (int half = 0; half < 2; ++half) {
      const uint32_t low = words[half], high = words[half + 2];
      store(first + 8 * step + 4 * half, math::nibbles_joined(low, high));
      store(second + 8 * step + 4 * half, math::nibbles_joined(low >> 4, high >> 4));
    }
  }
}

class Launch {
 public:
  Launch(const Fields& fields, const Operands& operands)
      : rows_(fields.weight_shape[0]),
        terms_(fields.weight_shape[1]),
        matrix_(operands[fields.inverse ? kOutput : kInput]),
        packed_(operands[fields.inverse ? kInput : kOutput]),
        inverse_(fields.inverse),
        low_first_(fields.nibble_order == NibbleOrder::LowFirst),
        flips_(static_cast<uint8_t>(FragmentOrder::flipped(fields.code_dtype) * 0x11)) {}

  void run(int threads) const {
    const int64_t across = groups_of(terms_, kTile);
    host::parallel_for(threads, groups_of(rows_, kTile) * across, kGrain,
                       [&](int64_t first, int64_t last) {
                         for (int64_t i = first; i < last; ++i) run_tile(i / across, i % across);
                       });
  }

 private:
  void run_tile(int64_t down, int64_t across) const {
    uint8_t* quad = static_cast<uint8_t*>(packed_.data) + down * packed_.strides[0] +
                    across * FragmentOrder::kTileBytes;
    for (int i = 0; i < kTile / 2; ++i, quad += kQuad) {
      const int64_t row = down * kTile + i / 8 * 16 + i % 8;
      Line first, second;
      if (inverse_) {
        restore_lines(quad, first, second);
        write_line(first, row, across * kTile);
        write_line(second, row + 8, across * kTile);
      } else {
        read_line(row, across * kTile, first);
        read_line(row + 8, across * kTile, second);
        pack_lines(first, second, quad);
      }
    }
  }

  // Bytes of the matrix that hold the tile's terms from `term` on, in a row.
  uint8_t* row_of(int64_t row, int64_t term) const {
    return static_cast<uint8_t*>(matrix_.data) + row * matrix_.strides[0] + term / 2;
  }
  // Terms of a row of a tile that there are.
  int64_t terms_of(int64_t row, int64_t term) const {
    return row < rows_ ? std::min<int64_t>(kTile, terms_ - term) : 0;
  }
  // As the packed weight has codes: the first in the low nibble, and maybe flipped.
  void convert(Line& line) const {
    for (uint8_t& byte : line) {
      if (!low_first_) byte = static_cast<uint8_t>(byte << 4 | byte >> 4);
      byte ^= flips_;
    }
  }
  // Beyond the matrix, codes are 0, and so is what stands behind an odd row.
  void read_line(int64_t row, int64_t term, Line& line) const {
    const int64_t terms = terms_of(row, term);
    if (terms == kTile) {
      std::memcpy(line, row_of(row, term), kLine);
    } else {
      std::memset(line, 0, kLine);
      std::copy_n(row_of(row, term), (terms + 1) / 2, line);
      if (terms % 2 == 1) line[terms / 2] &= first_nibble();
    }
    convert(line);
  }
  void write_line(Line& line, int64_t row, int64_t term) const {
    const int64_t terms = terms_of(row, term);
    convert(line);
    if (terms % 2 == 1) line[terms / 2] &= first_nibble();
    std::copy_n(line, (terms + 1) / 2, row_of(row, term));
  }
  uint8_t first_nibble() const { return low_first_ ? 0x0F : 0xF0; }

  int64_t rows_, terms_;
  OperandView matrix_, packed_;
  bool inverse_, low_first_;
  uint8_t flips_;  // of a byte
};

Status compute(const Call& call, const Stream& stream) {
  Launch(call.fields<Fields>(), call.operands).run(stream.threads);
  return Status::success();
}

Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }

constexpr Kernel kKernels[] = {
    {.op = "pack_weight_4bit",
     .body = "tiles",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 0,
     .guarantee = kGuarantee,
     .rejects = accept,
     .workspace = no_workspace,
     .prepare = nothing_to_prepare,
     .bind = host::bind<compute>},
};

}  // namespace

}  // namespace planq::pack_weight_4bit

PLANQ_KERNELS(pack_weight_4bit, host, kKernels);
