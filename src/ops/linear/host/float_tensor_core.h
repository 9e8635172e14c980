// Accumulation::TensorSm90: what the tensor cores of sm_90 compute, see math/tensor_core.h. No
// include guard, like the other parts of float_loops.h.
//
// A tensor core adds up a group of products and an accumulator in fixed point. Each is truncated to
// a unit, which is 2^(E - fraction) where E is the largest exponent among them. Here that takes two
// passes over a group:
// - The first finds E, for every column of a panel at once.
// - The second adds up trunc(product * 2^(fraction - E)) in int32. Numbers have at most 11
//   significant bits, so float32 holds a product exactly. Scaling it by a power of two is exact,
//   too. The result is less than 2^27, and converting it to int32 truncates it.
//
// At the ends of float32's range that is not so. Where E is too small for it, add_small_group
// computes the group, scaling in two steps. Where E is too large, or a number is infinite or NaN,
// math::tensor_core_step does, one output at a time.

namespace planq::host::PLANQ_LEVEL::floating {

// --- Panels and rows with their exponents --------------------------------------------------------

// Exponents are 16-bit numbers in pairs: of a panel, those of columns j and j + kFloatLanes; of a
// row, the same one twice. The exponent of a product is the sum of two. A zero makes that less than
// kNothing, and an infinity or a NaN makes it more than any float has.
constexpr std::int32_t kZeroExponent = -7000, kOddExponent = 15000, kNothing = -1000;

// `smallest`: the exponent of the smallest normal number of the type that the numbers come from.
inline Ints exponents_of(Floats x, std::int32_t smallest) {
  const Ints magnitude = reinterpret_cast<Ints>(x) & 0x7FFFFFFF;
  const Ints normal = (magnitude >> 23) - 127;
  const Ints raised = normal > smallest ? normal : repeated(smallest);
  const Ints known = magnitude == 0 ? repeated(kZeroExponent) : raised;
  return magnitude >= 0x7F800000 ? repeated(kOddExponent) : known;
}
inline Ints paired(Ints low, Ints high) { return (low & 0xFFFF) | (high << 16); }

// Whether any lane has a bit.
inline bool any(Ints lanes) {
#if PLANQ_VECTOR_BYTES == 64
  return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(lanes),
                                reinterpret_cast<__m512i>(lanes)) != 0;
#else
  std::int32_t found = 0;
  for (int i = 0; i < kFloatLanes; ++i) found |= lanes[i];
  return found != 0;
#endif
}

struct alignas(64) WidePanel {
  float values[kPanelTerms][kPanelColumns];
  // Stacks may be small: lines lie where exponents will be once the values are known.
  union {
    Lines lines;
    std::int16_t exponents[kPanelTerms][kPanelColumns];
  };
};
static_assert(sizeof(WidePanel::lines) == sizeof(WidePanel::exponents));
struct alignas(64) WideRows {
  float values[kWideRows][kPanelTerms];
  std::int32_t exponents[kWideRows][kPanelTerms];
};

// Of the first terms of some rows.
inline void find_exponents(WideRows& wide, int rows, int smallest, int terms = kPanelTerms) {
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < terms; i += kFloatLanes) {
      const Ints exponents = exponents_of(load(&wide.values[r][i]), smallest);
      *reinterpret_cast<Ints*>(&wide.exponents[r][i]) = paired(exponents, exponents);
    }
}
// Of the numbers of a panel, at terms from `first` to `end`.
inline void find_exponents(WidePanel& panel, int first, int end, int smallest) {
  for (int i = first; i < end; ++i)
    *reinterpret_cast<Ints*>(panel.exponents[i]) =
        paired(exponents_of(load(panel.values[i]), smallest),
               exponents_of(load(panel.values[i] + kFloatLanes), smallest));
}

inline void widen_rows(const GemmOperand& operand, std::int64_t row, int rows, std::int64_t term,
                       std::int64_t terms, WideRows& wide) {
  widen_terms(operand, row, rows, term, terms, wide.values);
  find_exponents(wide, rows, format_of(operand.dtype).smallest_exponent());
}

inline void widen_panel(const GemmOperand& operand, std::int64_t column, std::int64_t columns,
                        std::int64_t term, std::int64_t terms, WidePanel& panel) {
  widen_values(operand, column, columns, term, terms, panel.lines, panel.values);
  find_exponents(panel, 0, kPanelTerms, format_of(operand.dtype).smallest_exponent());
}

// --- A group of products -------------------------------------------------------------------------

// The least and the largest E for which the two passes are exact. With a smaller one, a product
// that float32 has to round might reach a unit. With a larger one, a product might overflow
// float32.
constexpr std::int32_t kLeast = -100, kMost = 125;

inline Floats power_of_two(Ints exponent) {
  return reinterpret_cast<Floats>((exponent + 127) << 23);
}

// What the groups of a vector of outputs are aligned to.
struct Alignment {
  Floats scale, unit;  // 2^(fraction - E), and its inverse
  Ints beyond;         // not 0 where E is out of the range in which the passes are exact
};

// `products`: the largest exponents of the products.
template <class Core>
inline Alignment aligned_to(Ints products, Floats accumulator) {
  const Ints bits = reinterpret_cast<Ints>(accumulator) & 0x7FFFFFFF;
  const Ints own = bits == 0 ? repeated(2 * kZeroExponent) : (bits >> 23) - 127;
  const Ints largest = products > own ? products : own;
  Alignment made;
  made.beyond = (largest > kMost) | ((largest < kLeast) & (largest > kNothing));
  // Where there are only zeros, any exponent does.
  const Ints exponent = largest > kLeast ? largest : repeated(kLeast);
  made.scale = power_of_two(Core::kFraction - exponent);
  made.unit = power_of_two(exponent - Core::kFraction);
  return made;
}

// Truncated to whole numbers.
inline Words whole(Floats x) { return reinterpret_cast<Words>(__builtin_convertvector(x, Ints)); }

// A sum, of a magnitude of at most 2^31 - 128, truncated to float32.
inline Floats truncated(Ints sum) {
#if PLANQ_VECTOR_BYTES == 64
  // With a mask of all lanes: GCC 12 warns about what the plain intrinsic leaves undefined.
  return reinterpret_cast<Floats>(_mm512_maskz_cvt_roundepi32_ps(
      0xFFFF, reinterpret_cast<__m512i>(sum), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC));
#else
  const Ints sign = sum >> 31, magnitude = (sum ^ sign) - sign;
  // The conversion rounds to nearest. What it made larger than the sum goes back by one float.
  const Floats nearest = __builtin_convertvector(magnitude, Floats);
  const Ints over = __builtin_convertvector(nearest, Ints) > magnitude;
  return reinterpret_cast<Floats>((reinterpret_cast<Ints>(nearest) + over) | (sign & INT32_MIN));
#endif
}

// The largest sum of products to which the accumulator can be added without leaving int32, with
// what truncated() needs to spare.
constexpr std::uint32_t kLargestSum = INT32_MAX - (1 << 26) - 127;

// Without the fraction bits that a result does not have.
template <class Core>
inline Floats rounded(Floats x) {
  constexpr std::int32_t kKept = -1 << (23 - Core::kOut);
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(x) & kKept);
}

// One group for a row and a vector of columns, where every E is at most 0. Both numbers of a
// product are scaled by 2^60: then float32 rounds no product that reaches a unit. A result below
// 2^-126 is truncated to the bits that a subnormal has. Returns false where the result would not be
// exact: add_odd_group goes on to the scalar function.
template <class Core>
bool add_small_group(const float* row, const std::int32_t* exponents, const WidePanel& panel,
                     int term, int vector, Floats& sum) {
  const Ints bits = reinterpret_cast<Ints>(sum) & 0x7FFFFFFF;
  const Ints own = (bits >> 23) - 127 > -126 ? (bits >> 23) - 127 : repeated(-126);
  Ints largest = bits == 0 ? repeated(math::kTensorCoreFloor) : own, beyond = {};
  for (int i = 0; i < Core::kGroup; ++i) {
    const Ints pairs = reinterpret_cast<Ints>(load(panel.exponents[term + i]));
    const Ints product = (vector == 0 ? (pairs << 16) >> 16 : pairs >> 16) + (exponents[i] >> 16);
    largest = product > largest ? product : largest;
  }
  if (any(largest > 0)) return false;
  constexpr float kStep = 0x1p60f, kRoom = 0x1p67f;
  const Floats scale = power_of_two(Core::kFraction - largest - 120);
  Words added = {};
  for (int i = 0; i < Core::kGroup; ++i) {
    const Floats weight = load(panel.values[term + i] + vector * kFloatLanes);
    beyond |= (weight >= kRoom) | (weight <= -kRoom);
    if (row[i] >= kRoom || row[i] <= -kRoom) return false;
    added += whole(repeated(row[i] * kStep) * (weight * kStep) * scale);
  }
  beyond |= reinterpret_cast<Ints>(added + kLargestSum > 2 * kLargestSum);
  if (any(beyond)) return false;
  added += whole(sum * kStep * power_of_two(Core::kFraction - largest - 60));
  const Ints all = reinterpret_cast<Ints>(added), sign = all >> 31;
  const Ints lost = Core::kFraction - Core::kOut - 126 - largest;
  const Ints zeros = lost > 0 ? lost : Ints{};
  const Ints kept = ((((all ^ sign) - sign) >> zeros) << zeros ^ sign) - sign;
  sum = rounded<Core>(truncated(kept) * 0x1p-64f * power_of_two(largest - Core::kFraction + 64));
  return true;
}

// A group for which the two passes of add_group are not exact.
template <class Core, int kRows>
[[gnu::noinline, gnu::cold]] void add_odd_group(const WideRows& rows, int first,
                                                const WidePanel& panel, int term, int smallest_row,
                                                int smallest_column,
                                                Floats (&sums)[kRows][kPanelVectors]) {
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kPanelVectors; ++v) {
      const float* row = &rows.values[first + r][term];
      const std::int32_t* exponents = &rows.exponents[first + r][term];
      if (add_small_group<Core>(row, exponents, panel, term, v, sums[r][v])) continue;
      for (int lane = 0; lane < kFloatLanes; ++lane) {
        const float* column = &panel.values[term][v * kFloatLanes + lane];
        sums[r][v][lane] =
            math::tensor_core_step<Core>(sums[r][v][lane], {row, smallest_row},
                                         {column, smallest_column, kPanelColumns}, Core::kGroup);
      }
    }
}

// The first pass: the largest exponents of the group's products, in pairs.
template <class Core, int kRows>
inline void find_largest(const WideRows& rows, int row, const WidePanel& panel, int term,
                         Shorts (&largest)[kRows]) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) largest[r] = Shorts{} - 32767;
  for (int i = term; i < term + Core::kGroup; ++i) {
    const Shorts weight = load(panel.exponents[i]);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Shorts sum = reinterpret_cast<Shorts>(repeated(rows.exponents[row + r][i])) + weight;
      largest[r] = sum > largest[r] ? sum : largest[r];
    }
  }
}

// One group for kRows rows and all columns of a panel.
template <class Core, int kRows>
inline void add_group(const WideRows& rows, int row, const WidePanel& panel, int term,
                      int smallest_row, int smallest_column, Floats (&sums)[kRows][kPanelVectors]) {
  Shorts largest[kRows];
  find_largest<Core, kRows>(rows, row, panel, term, largest);
  Floats scale[kRows][kPanelVectors];
  Alignment aligned[kRows][kPanelVectors];
  Ints beyond = {};
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const Ints pairs = reinterpret_cast<Ints>(largest[r]);
    aligned[r][0] = aligned_to<Core>((pairs << 16) >> 16, sums[r][0]);
    aligned[r][1] = aligned_to<Core>(pairs >> 16, sums[r][1]);
    beyond |= aligned[r][0].beyond | aligned[r][1].beyond;
    scale[r][0] = aligned[r][0].scale;
    scale[r][1] = aligned[r][1].scale;
  }
  // The second pass. The sums are unsigned, since those with an infinity or a NaN may wrap.
  Words added[kRows][kPanelVectors] = {};
  for (int i = term; i < term + Core::kGroup; ++i) {
    const Floats weight[kPanelVectors] = {load(panel.values[i]),
                                          load(panel.values[i] + kFloatLanes)};
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Floats input = repeated(rows.values[row + r][i]);
#pragma GCC unroll 2
      for (int v = 0; v < kPanelVectors; ++v) added[r][v] += whole(input * weight[v] * scale[r][v]);
    }
  }
  if constexpr (Core::kGroup * (std::uint64_t{4} << Core::kFraction) > kLargestSum)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kPanelVectors; ++v)
        beyond |= reinterpret_cast<Ints>(added[r][v] + kLargestSum > 2u * kLargestSum);
  if (any(beyond))
    return add_odd_group<Core, kRows>(rows, row, panel, term, smallest_row, smallest_column, sums);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kPanelVectors; ++v) {
      const Words all = added[r][v] + whole(sums[r][v] * scale[r][v]);
      sums[r][v] = rounded<Core>(truncated(reinterpret_cast<Ints>(all)) * aligned[r][v].unit);
    }
}

// --- Chains of groups ----------------------------------------------------------------------------

// What is the same for all chains of a block.
struct ChainArgs {
  int smallest_row, smallest_column;  // exponents of normal numbers
  bool continues;                     // Gemm::continues
};

// How a chain joins the sums so far: it is added to them, times its row's scale where there are
// `scales`. A chain that continues replaces them.
struct JoinSlices {
  const float* scales;
  bool continues;

  Floats operator()(Floats before, Floats chain, int row, int) const {
    if (continues) return chain;
    return scales ? fused(chain, repeated(scales[row]), before) : before + chain;
  }
};

// Adds up the groups of kRows rows from term `first` to `end` of a panel, and joins them to the
// sums so far. A chain begins at 0. Where it continues, it begins at the sums instead.
template <class Core, int kRows, class Join>
inline void add_chain(const ChainArgs& args, const WideRows& rows, int row, const WidePanel& panel,
                      int first, int end, const Join& join, float* sums) {
  const auto place = [&](int r, int v) { return sums + r * kPanelColumns + v * kFloatLanes; };
  Floats chain[kRows][kPanelVectors] = {};
  if (args.continues)
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kPanelVectors; ++v) chain[r][v] = load(place(r, v));
  for (int term = first; term < end; term += Core::kGroup)
    add_group<Core, kRows>(rows, row, panel, term, args.smallest_row, args.smallest_column, chain);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kPanelVectors; ++v)
      *reinterpret_cast<Floats*>(place(r, v)) = join(load(place(r, v)), chain[r][v], row + r, v);
}

// The same for a number of rows that is known at run time.
template <class Core, int kRows = kTogether, class Join>
void add_chains(int count, const ChainArgs& args, const WideRows& rows, int row,
                const WidePanel& panel, int first, int end, const Join& join, float* sums) {
  if constexpr (kRows > 1)
    if (count < kRows)
      return add_chains<Core, kRows - 1>(count, args, rows, row, panel, first, end, join, sums);
  add_chain<Core, kRows>(args, rows, row, panel, first, end, join, sums);
}

}  // namespace planq::host::PLANQ_LEVEL::floating
