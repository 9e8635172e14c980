// pack_weight_4bit on the host: tile by tile, through codes that have a byte each.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "host/elementwise.h"
#include "host/thread_pool.h"
#include "math/nibbles.h"
#include "ops/packing/fragment_order.h"
#include "ops/packing/pack_weight_4bit/desc.h"

namespace planq::pack_weight_4bit {
namespace {

using std::int64_t;
using std::uint8_t;

constexpr int kTile = FragmentOrder::kTile;
// Tiles that are worth waking a thread for.
constexpr int64_t kGrain = 8;

// Where the code of every nibble of a tile stands among its rows.
constexpr auto kPlaces = [] {
  std::array<std::uint16_t, FragmentOrder::kTileCodes> places{};
  for (int row = 0; row < kTile; ++row)
    for (int term = 0; term < kTile; ++term)
      places[static_cast<std::size_t>(FragmentOrder::nibble(row, term))] =
          static_cast<std::uint16_t>(row * kTile + term);
  return places;
}();

class Launch {
 public:
  Launch(const Fields& fields, const Operands& operands)
      : rows_(fields.weight_shape[0]),
        terms_(fields.weight_shape[1]),
        matrix_(operands[fields.inverse ? kOutput : kInput]),
        packed_(operands[fields.inverse ? kInput : kOutput]),
        inverse_(fields.inverse),
        low_first_(fields.nibble_order == NibbleOrder::LowFirst),
        flip_(static_cast<uint8_t>(FragmentOrder::flipped(fields.code_dtype))) {}

  void run(int threads) const {
    const int64_t across = groups_of(terms_, kTile);
    host::parallel_for(threads, groups_of(rows_, kTile) * across, kGrain,
                       [&](int64_t first, int64_t last) {
                         for (int64_t i = first; i < last; ++i) run_tile(i / across, i % across);
                       });
  }

 private:
  // Codes of a tile, row by row.
  using Tile = uint8_t[FragmentOrder::kTileCodes];

  void run_tile(int64_t down, int64_t across) const {
    uint8_t* const bytes = static_cast<uint8_t*>(packed_.data) + down * packed_.strides[0] +
                           across * FragmentOrder::kTileBytes;
    Tile codes;
    if (inverse_) {
      for (std::size_t i = 0; i < kPlaces.size(); ++i)
        codes[kPlaces[i]] = static_cast<uint8_t>((bytes[i / 2] >> i % 2 * 4 & 15) ^ flip_);
      return write_rows(codes, down * kTile, across * kTile);
    }
    read_rows(down * kTile, across * kTile, codes);
    for (std::size_t i = 0; i < kPlaces.size(); i += 2)
      bytes[i / 2] =
          static_cast<uint8_t>((codes[kPlaces[i]] ^ flip_) | (codes[kPlaces[i + 1]] ^ flip_) << 4);
  }

  // Bytes of the matrix that hold the tile's terms from `term` on, in a row.
  uint8_t* row_of(int64_t row, int64_t term) const {
    return static_cast<uint8_t*>(matrix_.data) + row * matrix_.strides[0] + term / 2;
  }
  // Beyond the matrix, codes are 0.
  void read_rows(int64_t row, int64_t term, Tile& codes) const {
    std::memset(codes, 0, sizeof codes);
    const int64_t rows = std::min<int64_t>(kTile, rows_ - row);
    const int64_t terms = std::min<int64_t>(kTile, terms_ - term);
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* const bytes = row_of(row + r, term);
      for (int64_t i = 0; i < terms; ++i)
        codes[r * kTile + i] = bytes[i / 2] >> (is_low(i) ? 0 : 4) & 15;
    }
  }
  // The spare nibble behind an odd row is 0.
  void write_rows(Tile& codes, int64_t row, int64_t term) const {
    const int64_t rows = std::min<int64_t>(kTile, rows_ - row);
    const int64_t terms = std::min<int64_t>(kTile, terms_ - term);
    for (int64_t r = 0; r < rows; ++r) {
      uint8_t* const bytes = row_of(row + r, term);
      uint8_t* const line = codes + r * kTile;
      if (terms % 2 == 1) line[terms] = 0;
      for (int64_t i = 0; i < terms; i += 2)
        bytes[i / 2] = low_first_ ? math::nibbles_joined(line[i], line[i + 1])
                                  : math::nibbles_joined(line[i + 1], line[i]);
    }
  }
  bool is_low(int64_t term) const { return (term % 2 == 0) == low_first_; }

  int64_t rows_, terms_;
  OperandView matrix_, packed_;
  bool inverse_, low_first_;
  uint8_t flip_;
};

Status compute(const Call& call, const Stream& stream) {
  Launch(call.fields<Fields>(), call.operands).run(stream.threads);
  return Status::success();
}

Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }

constexpr Kernel kKernels[] = {
    {.op = "pack_weight_4bit",
     .method = "tiles",
     .revision = 1,
     .backend = Backend::Host,
     .arch = {},
     .rank = 0,
     .guarantee = kGuarantee,
     .rejects = accept,
     .workspace = host::no_workspace,
     .prepare = host::nothing_to_prepare,
     .bind = host::bind<compute>},
};

}  // namespace

}  // namespace planq::pack_weight_4bit

PLANQ_KERNELS(pack_weight_4bit, host, kKernels);
