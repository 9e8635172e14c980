// pack_int4 on the host: lines of packed bytes, in loops that compilers vectorise.

#include <cstdint>
#include <cstring>
#include <string_view>

#include "host/bind.h"
#include "host/thread_pool.h"
#include "math/nibbles.h"
#include "ops/affine/scale.h"
#include "ops/packing/nibble_pairs.h"
#include "ops/packing/pack_int4/desc.h"

namespace planq::pack_int4 {
namespace {

using std::int64_t;
using std::uint8_t;

// Packed bytes that are worth waking a thread for.
constexpr int64_t kGrain = 1 << 16;

template <NibbleOrder kOrder>
void pack_adjacent(const uint8_t* codes, uint8_t* packed, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    std::uint16_t both;
    std::memcpy(&both, codes + 2 * i, sizeof both);
    packed[i] = static_cast<uint8_t>(math::neighbours_joined(both, kOrder));
  }
}

void pack_planes(const uint8_t* low, const uint8_t* high, uint8_t* packed, int64_t count) {
  for (int64_t i = 0; i < count; ++i) packed[i] = math::nibbles_joined(low[i], high[i]);
}

struct Line {
  const NibblePairs& pairs;
  NibbleOrder order;
  const uint8_t* codes;
  uint8_t* packed;
  int64_t count, whole;

  void pack() const {
    const bool low_first = order == NibbleOrder::LowFirst;
    if (pairs.adjacent()) {
      (low_first ? pack_adjacent<NibbleOrder::LowFirst>
                 : pack_adjacent<NibbleOrder::HighFirst>)(codes, packed, whole);
    } else if (pairs.planes()) {
      const uint8_t* second = codes + pairs.second;
      pack_planes(low_first ? codes : second, low_first ? second : codes, packed, whole);
    } else {
      for (int64_t i = 0; i < whole; ++i) pack_one(i, code(i)[pairs.second]);
    }
    for (int64_t i = whole; i < count; ++i) pack_one(i, 0);
  }

 private:
  const uint8_t* code(int64_t i) const {
    return codes + i * pairs.inner_axis().stride[NibblePairs::kCodes];
  }
  void pack_one(int64_t i, uint8_t second) const {
    packed[i * pairs.inner_axis().stride[NibblePairs::kPacked]] =
        math::pack_nibbles(*code(i), second, order);
  }
};

Status compute(const Call& call, const Stream& stream) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const NibblePairs pairs(f.shape, f.axis, operands[kInput], operands[kOutput]);
  const auto* codes = static_cast<const uint8_t*>(operands[kInput].data);
  auto* packed = static_cast<uint8_t*>(operands[kOutput].data);
  host::parallel_for(stream.threads, pairs.bytes.size(), kGrain, [&](int64_t first, int64_t last) {
    pairs.each_line(first, last, [&](int64_t from, int64_t to, int64_t count, int64_t whole) {
      Line{pairs, f.nibble_order, codes + from, packed + to, count, whole}.pack();
    });
  });
  return Status::success();
}

template <DType kOutput>
constexpr Kernel make_kernel() {
  return {.op = "pack_int4",
          .body = "bytes",
          .dtypes = kDTypes<byte_dtype(kOutput), kOutput>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kOutput>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute>};
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Int4>(),
    make_kernel<DType::UInt4>(),
};

}  // namespace

}  // namespace planq::pack_int4

PLANQ_KERNELS(pack_int4, host, kKernels);
