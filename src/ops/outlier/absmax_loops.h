// Loops over the columns of a tile of one row, for one instruction set: see absmax_host.h. No
// include guard: see host/instruction_sets.h.

namespace planq::outlier::PLANQ_LEVEL {

template <class T>
RowTile<T> measure(const T* __restrict x, int64_t count, OutlierRule<T> given,
                   Magnitude<T>* __restrict columns) {
  const OutlierRule<T> rule = given;
  Magnitude<T> largest = 0;
  Magnitude<T> outliers = 0;  // a tile has so few that any type can count them
  for (int64_t j = 0; j < count; ++j) {
    const Magnitude<T> own = magnitude_of(x[j]);
    const Magnitude<T> takes = (own >= rule.least) & (own <= kInfinity<T>);
    const Magnitude<T> kept = takes ? Magnitude<T>{0} : own;
    columns[j] = columns[j] > kept ? columns[j] : kept;
    largest = largest > kept ? largest : kept;
    outliers = static_cast<Magnitude<T>>(outliers + takes);
  }
  return {largest, static_cast<std::int32_t>(outliers)};
}

// The code of an element; 0 for an outlier.
template <bool kDivide, class T>
inline std::uint32_t code(T x, CodeFactor factor, OutlierRule<T> rule) {
  const float value = math::widen(x);
  const std::uint32_t bits = code_bits(kDivide ? value / factor.scale : value * factor.inverse);
  const Magnitude<T> own = magnitude_of(x);
  return (own >= rule.least) & (own <= kInfinity<T>) ? 0u : bits;
}

template <class T, bool kDivide>
void encode(const T* __restrict x, int64_t count, OutlierRule<T> given, CodeFactor row,
            const TileFactors& columns, std::int8_t* __restrict row_codes,
            std::int8_t* __restrict column_codes) {
  const OutlierRule<T> rule = given;
  for (int64_t j = 0; j < count; ++j)
    row_codes[j] = static_cast<std::int8_t>(code<kDivide>(x[j], row, rule));
  for (int64_t j = 0; j < count; ++j)
    column_codes[j] = static_cast<std::int8_t>(
        code<kDivide>(x[j], CodeFactor{columns.scale[j], columns.inverse[j]}, rule));
}

template <class T>
inline constexpr TileLoops<T> kLoops = {measure<T>, encode<T, true>, encode<T, false>};

}  // namespace planq::outlier::PLANQ_LEVEL
