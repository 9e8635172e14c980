// Floats to codes of blocks, a struct for each type: fit() measures a unit, code() makes an
// element's code; see quantizers.h. F is a float, or a vector of floats whose lanes are units of
// their own. Every sum is a chain in the order of the elements. No include guard: compiled for each
// instruction set, and for CUDA with a level of its own, where F is a float.

namespace planq::gguf::PLANQ_LEVEL {

// --- Numbers -------------------------------------------------------------------------------------

template <class F>
PLANQ_HD F repeated(float x) {
  return x - F{};
}
PLANQ_HD float magnitude_of(float x) { return magnitude(x); }
PLANQ_HD float root_of(float x) { return math::root(x); }

#ifdef PLANQ_VECTOR_BYTES
typedef float Floats __attribute__((vector_size(PLANQ_VECTOR_BYTES), may_alias));
typedef std::uint32_t Words __attribute__((vector_size(PLANQ_VECTOR_BYTES), may_alias));

PLANQ_HD Floats magnitude_of(Floats x) {
  return reinterpret_cast<Floats>(reinterpret_cast<Words>(x) & 0x7FFFFFFFu);
}
PLANQ_HD Floats root_of(Floats x) {
  for (int i = 0; i < PLANQ_VECTOR_BYTES / 4; ++i) x[i] = math::root(x[i]);
  return x;
}
#endif

template <class F>
PLANQ_HD F number_of(F x) {
  return x == x ? x : F{};
}
// Between two integers of small magnitude, of which the lower one is at most 0. A NaN becomes 0.
template <class F>
PLANQ_HD F bounded(F x, float low, float high) {
  const F number = low == 0 ? x : number_of(x);
  const F raised = number > low ? number : repeated<F>(low);
  return raised < high ? raised : repeated<F>(high);
}
// Small numbers to integers: to the nearest with ties to even, with ties away from zero, and, of
// those that are at least 0, down. A zero is +0.
template <class F>
PLANQ_HD F nearest(F x) {
  return (x + 0x1.8p23f) - 0x1.8p23f;
}
template <class F>
PLANQ_HD F nearest_away(F x) {
  const F even = nearest(x), rest = x - even;
  const F up = (x > 0.0f) & (rest == 0.5f) ? repeated<F>(1) : F{};
  const F down = (x < 0.0f) & (rest == -0.5f) ? repeated<F>(1) : F{};
  return even + up - down;
}
template <class F>
PLANQ_HD F whole_part(F x) {
  const F even = nearest(x);
  return even > x ? even - 1.0f : even;
}

template <class F>
PLANQ_HD F peak_of(const F* x, int count) {
  F largest{}, peak{};
  for (int e = 0; e < count; ++e) {
    const F own = magnitude_of(x[e]);
    peak = own > largest ? x[e] : peak;
    largest = own > largest ? own : largest;
  }
  return peak;
}

// --- Types with one scale of few steps -----------------------------------------------------------

struct LargestFit {
  template <int kCount, class F>
  PLANQ_HD static void fit(const F* x, F& first, F&) {
    F largest{};
    for (int e = 0; e < kCount; ++e) {
      const F own = magnitude_of(x[e]);
      largest = own > largest ? own : largest;
    }
    first = largest;
  }
};
struct PeakFit {
  template <int kCount, class F>
  PLANQ_HD static void fit(const F* x, F& first, F&) {
    first = peak_of(x, kCount);
  }
};
struct RangeFit {
  template <int kCount, class F>
  PLANQ_HD static void fit(const F* x, F& first, F& second) {
    F low = x[0], high = x[0];
    for (int e = 1; e < kCount; ++e) {
      low = x[e] < low ? x[e] : low;
      high = x[e] > high ? x[e] : high;
    }
    first = low, second = high;
  }
};
struct SumFit {
  template <int kCount, class F>
  PLANQ_HD static void fit(const F* x, F& first, F&) {
    F sum{};
    for (int e = 0; e < kCount; ++e) sum += magnitude_of(x[e]);
    first = sum;
  }
};

// How code() makes codes.
template <int kHalf>
struct CenteredCodes {
  template <class F>
  PLANQ_HD static F code(F x, F factor, F) {
    return whole_part(bounded(x * factor + (kHalf + 0.5f), 0, 2 * kHalf - 1));
  }
};
template <int kTop>
struct RaisedCodes {
  template <class F>
  PLANQ_HD static F code(F x, F factor, F minimum) {
    return whole_part(bounded((x - minimum) * factor + 0.5f, 0, kTop));
  }
};
template <int kLow, int kHigh, int kAdded>
struct AwayCodes {
  template <class F>
  PLANQ_HD static F code(F x, F factor, F) {
    return nearest_away(bounded(x * factor, kLow, kHigh)) + static_cast<float>(kAdded);
  }
};
struct EvenCodes {
  template <class F>
  PLANQ_HD static F code(F x, F factor, F) {
    return nearest(bounded(factor * x, -127, 127));
  }
};
struct SignCodes {
  template <class F>
  PLANQ_HD static F code(F x, F, F) {
    return x >= 0.0f ? repeated<F>(1) : F{};
  }
};

// The first code of least error: the number of a code times the scale, rounded, from x, rounded.
// Codes of the other sign are never nearer than 0, nor is the second code of 0.
struct E2M1Codes {
  template <class F>
  PLANQ_HD static F code(F x, F scale, F) {
    const F own = magnitude_of(x);
    F best = own, code{};
    for (int c = 1; c < 8; ++c) {
      const F error = magnitude_of(scale * static_cast<float>(twice_e2m1(c)) - own);
      code = error < best ? repeated<F>(static_cast<float>(c)) : code;
      best = error < best ? error : best;
    }
    return (x < 0.0f) & (code > 0.0f) ? code + 8.0f : code;
  }
};

// --- Searches for a scale and a minimum ----------------------------------------------------------

// Searches call keep(e, code) for each element: where the stored scale of a unit is 0, these codes
// stay.

// kSquares: errors are squared, and weights are larger by the root of the mean square.
template <int kTop, int kStart, int kSteps, bool kSquares>
struct MinimumSearch {
  template <int kCount, class F>
  struct Unit {
    const F* x;
    F bias;  // of weights

    PLANQ_HD explicit Unit(const F* elements) : x(elements), bias{} {
      if constexpr (kSquares) {
        F sum{};
        for (int e = 0; e < kCount; ++e) sum += x[e] * x[e];
        bias = root_of(sum / static_cast<float>(kCount));
      }
    }
    PLANQ_HD F weight(int e) const {
      const F own = magnitude_of(x[e]);
      return kSquares ? bias + own : own;
    }
    PLANQ_HD F code(int e, F factor, F low) const {
      return nearest(bounded(factor * (x[e] - low), 0, kTop));
    }
    // With the codes of a factor and of the lowest element, which need not be `low`.
    PLANQ_HD F error(F factor, F from, F scale, F low) const {
      F sum{};
      for (int e = 0; e < kCount; ++e) {
        const F own = scale * code(e, factor, from) + low - x[e];
        sum += weight(e) * (kSquares ? own * own : magnitude_of(own));
      }
      return sum;
    }
  };

  template <int kCount, class F, class Keep>
  PLANQ_HD static void fit(const F* x, F& first, F& second, const Keep& keep) {
    const Unit<kCount, F> unit(x);
    F lowest{}, high{};
    RangeFit::fit<kCount>(x, lowest, high);
    lowest = lowest > 0.0f ? F{} : lowest;
    F weights = unit.weight(0), sum = weights * x[0];
    for (int e = 1; e < kCount; ++e) {
      weights += unit.weight(e);
      sum += unit.weight(e) * x[e];
    }
    F low = lowest, from = lowest;
    F factor = static_cast<float>(kTop) / (high - low);
    F scale = 1.0f / factor;
    F best = unit.error(factor, low, scale, low);
    for (int t = 0; t <= kSteps; ++t) {
      const float parts = kStart / 2.0f + 0.1f * static_cast<float>(t) + kTop;
      const F own = parts / (high - low);
      F l{}, ll{}, xl{};
      for (int e = 0; e < kCount; ++e) {
        const F code = unit.code(e, own, low), part = unit.weight(e) * code;
        l += part;
        ll += part * code;
        xl += part * x[e];
      }
      const F divisor = weights * ll - l * l;
      const F minimum = (ll * sum - l * xl) / divisor;
      const F own_scale = minimum > 0.0f ? xl / ll : (weights * xl - sum * l) / divisor;
      const F own_low = minimum > 0.0f ? F{} : minimum;
      const F error = unit.error(own, low, own_scale, own_low);
      const auto better = (divisor > 0.0f) & (error < best);
      factor = better ? own : factor;
      from = better ? low : from;
      scale = better ? own_scale : scale;
      low = better ? own_low : low;
      best = better ? error : best;
    }
    const auto flat = high == lowest;
    first = flat ? F{} : scale;
    second = flat ? lowest : low;
    for (int e = 0; e < kCount; ++e) keep(e, flat ? F{} : unit.code(e, factor, from));
  }

  // `scale` is not 0.
  template <class F>
  PLANQ_HD static F code(F x, F scale, F minimum) {
    return nearest(bounded((x + minimum) / scale, 0, kTop));
  }
};

// --- Searches for a scale ------------------------------------------------------------------------

// The sums that the scale of codes is made of: elements weigh their square. kCodeFirst: which
// factor the weight is multiplied by first.
template <class F, bool kCodeFirst>
struct Products {
  F elements{}, codes{};

  PLANQ_HD void add(F x, F code) {
    const F weight = x * x;
    elements += kCodeFirst ? weight * code * x : weight * x * code;
    codes += weight * code * code;
  }
  PLANQ_HD F scale() const { return elements / codes; }
};

// Codes from -kHalf to kHalf - 1, stored with kHalf added.
template <int kHalf>
struct SymmetricSearch {
  template <class F>
  PLANQ_HD static F signed_code(F x, F factor) {
    return nearest(bounded(factor * x, -kHalf, kHalf - 1));
  }
  template <int kCount, class F>
  PLANQ_HD static Products<F, false> products(const F* x, F factor) {
    Products<F, false> sums;
    for (int e = 0; e < kCount; ++e) sums.add(x[e], signed_code(x[e], factor));
    return sums;
  }

  template <int kCount, class F, class Keep>
  PLANQ_HD static void fit(const F* x, F& first, F&, const Keep& keep) {
    const F peak = peak_of(x, kCount);
    F factor = static_cast<float>(-kHalf) / peak;
    Products<F, false> sums = products<kCount>(x, factor);
    F scale = sums.scale(), best = scale * sums.elements;
    for (int t = -9; t <= 9; ++t) {
      if (t == 0) continue;
      const F own = -(kHalf + 0.1f * static_cast<float>(t)) / peak;
      sums = products<kCount>(x, own);
      const auto better = (sums.codes > 0.0f) & (sums.elements * sums.elements > best * sums.codes);
      factor = better ? own : factor;
      scale = better ? sums.scale() : scale;
      best = better ? sums.scale() * sums.elements : best;
    }
    const auto negligible = magnitude_of(peak) < kNegligible;
    first = negligible ? F{} : scale;
    for (int e = 0; e < kCount; ++e)
      keep(e, negligible ? F{} : signed_code(x[e], factor) + static_cast<float>(kHalf));
  }

  // `scale` is not 0.
  template <class F>
  PLANQ_HD static F code(F x, F scale, F) {
    return nearest(bounded(x / scale, -kHalf, kHalf - 1)) + static_cast<float>(kHalf);
  }
};

// Changes one code after another to the best one beside the others; a sweep that changes none is
// the last, and so is the fifth.
struct SweepSearch : SymmetricSearch<4> {
  template <int kCount, class F, class Keep>
  PLANQ_HD static void fit(const F* x, F& first, F&, const Keep& keep) {
    const F peak = peak_of(x, kCount);
    const F factor = -4.0f / peak;
    F codes[kCount];
    Products<F, false> sums;
    for (int e = 0; e < kCount; ++e) {
      codes[e] = signed_code(x[e], factor);
      sums.add(x[e], codes[e]);
    }
    for (int sweep = 0; sweep < 5; ++sweep)
      for (int e = 0; e < kCount; ++e) improve(x[e], codes[e], sums);
    const auto negligible = magnitude_of(peak) < kNegligible;
    first = negligible ? F{} : sums.scale();
    for (int e = 0; e < kCount; ++e) keep(e, negligible ? F{} : codes[e] + 4.0f);
  }

 private:
  template <class F>
  PLANQ_HD static void improve(F x, F& code, Products<F, false>& sums) {
    const F weight = x * x;
    const F others = sums.elements - weight * x * code;
    const F other_codes = sums.codes - weight * code * code;
    const F own = nearest(bounded(x * other_codes / others, -4, 3));
    const F elements = others + weight * x * own, codes = other_codes + weight * own * own;
    const auto better = (others > 0.0f) & (own != code) & (codes > 0.0f) &
                        (elements * elements * sums.codes > sums.elements * sums.elements * codes);
    code = better ? own : code;
    sums.elements = better ? elements : sums.elements;
    sums.codes = better ? codes : sums.codes;
  }
};

// --- Codes that stand for numbers of a table -----------------------------------------------------

// Sums up by how much the numbers of iq4_nl, or the codes, grow at each midpoint of two numbers
// that x reaches.
template <bool kNumbers, class F>
PLANQ_HD F non_linear_of(F x) {
  const F number = number_of(x);
  F sum = repeated<F>(static_cast<float>(kNumbers ? non_linear(0) : 0));
  for (int c = 1; c < 16; ++c) {
    const int step = kNumbers ? non_linear(c) - non_linear(c - 1) : 1;
    const float midpoint = static_cast<float>(non_linear(c) + non_linear(c - 1)) / 2;
    sum += number >= midpoint ? repeated<F>(static_cast<float>(step)) : F{};
  }
  return sum;
}

struct NonLinearSearch {
  template <int kCount, class F>
  PLANQ_HD static Products<F, true> products(const F* x, F factor) {
    Products<F, true> sums;
    for (int e = 0; e < kCount; ++e) sums.add(x[e], non_linear_of<true>(factor * x[e]));
    return sums;
  }

  template <int kCount, class F>
  PLANQ_HD static void fit(const F* x, F& first, F&) {
    const F peak = peak_of(x, kCount);
    const float end = static_cast<float>(non_linear(0));
    Products<F, true> sums = products<kCount>(x, 1.0f / (-peak / end));
    F scale = sums.scale(), best = scale * sums.elements;
    for (int t = -7; t <= 7; ++t) {
      sums = products<kCount>(x, (static_cast<float>(t) + end) / peak);
      const auto better = (sums.codes > 0.0f) & (sums.elements * sums.elements > best * sums.codes);
      scale = better ? sums.scale() : scale;
      best = better ? sums.scale() * sums.elements : best;
    }
    first = magnitude_of(peak) < kNegligible ? F{} : scale;
  }

  template <class F>
  PLANQ_HD static F code(F x, F factor, F) {
    return non_linear_of<false>(factor * x);
  }
};

// --- Types ---------------------------------------------------------------------------------------

template <GgufType kType>
struct Coder;
// clang-format off
template <> struct Coder<GgufType::Q4_0> : PeakFit, CenteredCodes<8> {};
template <> struct Coder<GgufType::Q4_1> : RangeFit, RaisedCodes<15> {};
template <> struct Coder<GgufType::Q5_0> : PeakFit, CenteredCodes<16> {};
template <> struct Coder<GgufType::Q5_1> : RangeFit, RaisedCodes<31> {};
template <> struct Coder<GgufType::Q8_0> : LargestFit, AwayCodes<-127, 127, 0> {};
template <> struct Coder<GgufType::Q8_1> : LargestFit, AwayCodes<-127, 127, 0> {};
template <> struct Coder<GgufType::Q8_K> : PeakFit, EvenCodes {};
template <> struct Coder<GgufType::Q2_K> : MinimumSearch<3, -1, 15, false> {};
template <> struct Coder<GgufType::Q3_K> : SweepSearch {};
template <> struct Coder<GgufType::Q4_K> : MinimumSearch<15, -2, 20, true> {};
template <> struct Coder<GgufType::Q5_K> : MinimumSearch<31, -1, 15, true> {};
template <> struct Coder<GgufType::Q6_K> : SymmetricSearch<32> {};
template <> struct Coder<GgufType::Iq4Nl> : NonLinearSearch {};
template <> struct Coder<GgufType::Iq4Xs> : NonLinearSearch {};
template <> struct Coder<GgufType::Mxfp4> : LargestFit, E2M1Codes {};
template <> struct Coder<GgufType::Nvfp4> : LargestFit, E2M1Codes {};
template <> struct Coder<GgufType::Tq1_0> : LargestFit, AwayCodes<-1, 1, 1> {};
template <> struct Coder<GgufType::Tq2_0> : LargestFit, AwayCodes<-1, 1, 1> {};
template <> struct Coder<GgufType::Q1_0> : SumFit, SignCodes {};
template <> struct Coder<GgufType::Q2_0> : LargestFit, AwayCodes<-1, 2, 1> {};
// clang-format on

// Whether the codes of a type's search may stay.
template <GgufType kType>
inline constexpr bool kKeepsCodes = requires(const float* x, float y, void (*keep)(int, float)) {
  Coder<kType>::template fit<16>(x, y, y, keep);
};

}  // namespace planq::gguf::PLANQ_LEVEL
