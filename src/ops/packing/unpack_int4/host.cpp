// unpack_int4 on the host: lines of packed bytes, in loops that compilers vectorise.

#include <cstdint>
#include <cstring>
#include <string_view>

#include "host/bind.h"
#include "host/thread_pool.h"
#include "math/nibbles.h"
#include "ops/packing/nibble_pairs.h"
#include "ops/packing/unpack_int4/desc.h"

namespace planq::unpack_int4 {
namespace {

using std::int64_t;
using std::uint8_t;

// Packed bytes that are worth waking a thread for.
constexpr int64_t kGrain = 1 << 16;

template <bool kSigned, class Word>
Word finished(Word codes) {
  return kSigned ? math::nibbles_extended(codes) : codes;
}

template <bool kSigned, NibbleOrder kOrder>
void unpack_adjacent(const uint8_t* packed, uint8_t* codes, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto both = finished<kSigned>(math::neighbours_split<std::uint16_t>(packed[i], kOrder));
    std::memcpy(codes + 2 * i, &both, sizeof both);
  }
}

template <bool kSigned>
void unpack_planes(const uint8_t* packed, uint8_t* low, uint8_t* high, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    low[i] = finished<kSigned>(math::low_nibbles(packed[i]));
    high[i] = finished<kSigned>(math::high_nibbles(packed[i]));
  }
}

template <bool kSigned>
struct Line {
  const NibblePairs& pairs;
  NibbleOrder order;
  const uint8_t* packed;
  uint8_t* codes;
  int64_t count, whole;

  void unpack() const {
    const bool low_first = order == NibbleOrder::LowFirst;
    if (pairs.adjacent()) {
      (low_first ? unpack_adjacent<kSigned, NibbleOrder::LowFirst>
                 : unpack_adjacent<kSigned, NibbleOrder::HighFirst>)(packed, codes, whole);
    } else if (pairs.planes()) {
      uint8_t* second = codes + pairs.second;
      unpack_planes<kSigned>(packed, low_first ? codes : second, low_first ? second : codes, whole);
    } else {
      for (int64_t i = 0; i < whole; ++i) {
        *code(i) = nibble(i, low_first);
        code(i)[pairs.second] = nibble(i, !low_first);
      }
    }
    for (int64_t i = whole; i < count; ++i) *code(i) = nibble(i, low_first);
  }

 private:
  uint8_t* code(int64_t i) const {
    return codes + i * pairs.inner_axis().stride[NibblePairs::kCodes];
  }
  uint8_t nibble(int64_t i, bool low) const {
    const uint8_t byte = packed[i * pairs.inner_axis().stride[NibblePairs::kPacked]];
    return finished<kSigned>(low ? math::low_nibbles(byte) : math::high_nibbles(byte));
  }
};

template <bool kSigned>
Status compute(const Call& call, const Stream& stream) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const NibblePairs pairs(f.shape, f.axis, operands[kOutput], operands[kInput]);
  const auto* packed = static_cast<const uint8_t*>(operands[kInput].data);
  auto* codes = static_cast<uint8_t*>(operands[kOutput].data);
  host::parallel_for(stream.threads, pairs.bytes.size(), kGrain, [&](int64_t first, int64_t last) {
    pairs.each_line(first, last, [&](int64_t to, int64_t from, int64_t count, int64_t whole) {
      Line<kSigned>{pairs, f.nibble_order, packed + from, codes + to, count, whole}.unpack();
    });
  });
  return Status::success();
}

template <DType kCodes>
constexpr Kernel make_kernel() {
  return {.op = "unpack_int4",
          .body = "bytes",
          .dtypes = kDTypes<kCodes, byte_dtype(kCodes)>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kCodes>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kCodes == DType::Int4>>};
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Int4>(),
    make_kernel<DType::UInt4>(),
};

}  // namespace

}  // namespace planq::unpack_int4

PLANQ_KERNELS(unpack_int4, host, kKernels);
