// estimate_quantiles: order statistics of all elements, found by the digits of their keys. This
// header is the operator's contract and what both backends know of the method.
//
// This is a radix select. A pass counts elements by one digit of their keys
// (statistics/quantiles.h): the first pass counts all elements, a later one those whose higher
// digits are those of a wanted element. So each pass finds one more digit of every wanted element,
// and after the last one their keys are known.
#pragma once

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "core/host_device.h"
#include "core/operands.h"
#include "core/registry.h"

namespace planq::estimate_quantiles {

inline constexpr std::int64_t kMaxQuantiles = 256;

struct Fields {
  Shape shape;
  DType input_dtype = DType::Unset;
  std::int64_t quantiles = kMaxQuantiles;
  double tail = kUnsetBound;
  NonFinite nonfinite = NonFinite::Propagate;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, quantiles),
    PLANQ_FIELD(Fields, tail),
    PLANQ_FIELD(Fields, nonfinite),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
inline constexpr auto kOperands =
    operands(kFields, {{"input", Role::Input, "input_dtype", "shape"},
                       {"output", Role::Output, compute_dtype("input_dtype"), "quantiles"}});

// Counters of a pass: 64 KiB of 32 bits each, which every GPU has room for in a block.
inline constexpr int kCounterBits = 14, kCounters = 1 << kCounterBits;

// The bits of a key that a pass counts by. There are 2^bits counters for each prefix (the digits
// found so far) that wanted elements have; in the first pass, for one empty prefix.
struct Digit {
  int shift = 0, bits = 0;

  template <class Key>
  PLANQ_HD std::uint32_t of(Key key) const {
    return static_cast<std::uint32_t>(key >> shift) & ((1u << bits) - 1);
  }
  bool is_last() const { return shift == 0; }
};

// The highest counter of the first pass is that of NaN alone: any sign, exponent and two more bits
// tell infinity from it.
inline Digit first_digit(DType input) { return {bits_of(input) - kCounterBits, kCounterBits}; }
// As many bits as the counters allow, should every wanted element have a prefix of its own.
inline Digit next_digit(const Digit& before, std::int64_t quantiles) {
  const int prefixes_log2 = std::bit_width(static_cast<std::uint64_t>(quantiles - 1));
  const int bits = std::min(before.shift, kCounterBits - prefixes_log2);
  return {before.shift - bits, bits};
}

template <DType kInput>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const DType input = descriptor.as<Fields>().input_dtype;
  if (input == kInput) return Reason::accept();
  return Reason::refuse(ReasonKind::DType, "orders input_dtype ", name_of(kInput), ", not ",
                        name_of(input));
}

// What the kernels of both backends promise; a quantile is copied, never computed.
template <DType kInput>
constexpr Guarantee guarantee() {
  return {.determinism = Determinism::BitExact,
          .math = MathPrecision::None,
          .accumulator = compute_dtype(kInput),
          .rounding = Rounding::None,
          .max_ulp = 0,
          .error_bound = kNoErrorBound,
          .batch_invariant = true,
          .basis = std::string_view("exact selection by integer counts; nothing is rounded")};
}

}  // namespace planq::estimate_quantiles
