// The loops of group_host.cpp, for one instruction set. No include guard: see instruction_sets.h.

#include "host/convert.h"

namespace planq::host::PLANQ_LEVEL {

// Ranges side by side, since one after another each would wait for the one before.
inline void extend_range(const float* x, std::int64_t count, math::GroupRange& range) {
  constexpr int kLanes = 32;
  float low[kLanes], high[kLanes];
  for (int j = 0; j < kLanes; ++j) low[j] = range.low, high[j] = range.high;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int j = 0; j < kLanes; ++j) {
      low[j] = math::smaller(x[i + j], low[j]);
      high[j] = math::larger(x[i + j], high[j]);
    }
  for (int j = 0; j < kLanes; ++j) range.add(math::GroupRange{low[j], high[j]});
  for (; i < count; ++i) range.add(x[i]);
}

template <class T, bool kIntx>
void encode_as(const float* __restrict x, std::int64_t count, const math::GroupSpec& spec,
               const math::GroupScale& scale, std::uint8_t* __restrict codes) {
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] =
        static_cast<std::uint8_t>(static_cast<int>(math::group_code<T, kIntx>(spec, scale, x[i])));
}
template <class T>
void encode(const float* x, std::int64_t count, const math::GroupSpec& given,
            const math::GroupScale& scale, std::uint8_t* codes) {
  const math::GroupSpec spec = given;  // a copy, which codes cannot be part of
  if (spec.form == math::GroupForm::Intx)
    encode_as<T, true>(x, count, spec, scale, codes);
  else
    encode_as<T, false>(x, count, spec, scale, codes);
}

template <class T, math::GroupForm kForm, class Code>
void decode_as(const std::uint8_t* __restrict codes, std::int64_t count, math::GroupPair stored,
               float* __restrict y) {
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = math::group_value<T>(kForm, stored, static_cast<float>(static_cast<Code>(codes[i])));
}
template <class T>
void decode(const std::uint8_t* codes, std::int64_t count, math::GroupForm form,
            const math::GroupPair& stored, float* y) {
  using math::GroupForm;
  if (form == GroupForm::Symmetric)
    decode_as<T, GroupForm::Symmetric, std::int8_t>(codes, count, stored, y);
  else if (form == GroupForm::Asymmetric)
    decode_as<T, GroupForm::Asymmetric, std::int8_t>(codes, count, stored, y);
  else
    decode_as<T, GroupForm::Intx, std::uint8_t>(codes, count, stored, y);
}

// Adds the values of one rank's codes.
template <math::GroupForm kForm, bool kHalf>
void accumulate_as(const std::uint8_t* __restrict codes, std::int64_t count, math::GroupPair stored,
                   float* __restrict sums) {
  for (std::int64_t i = 0; i < count; ++i)
    sums[i] = math::accumulated<kHalf>(
        sums[i], math::group_value<float>(kForm, stored,
                                          static_cast<float>(static_cast<std::int8_t>(codes[i]))));
}
template <bool kHalf>
void accumulate(const std::uint8_t* codes, std::int64_t count, math::GroupForm form,
                const math::GroupPair& stored, float* sums) {
  if (form == math::GroupForm::Symmetric)
    accumulate_as<math::GroupForm::Symmetric, kHalf>(codes, count, stored, sums);
  else
    accumulate_as<math::GroupForm::Asymmetric, kHalf>(codes, count, stored, sums);
}
template <bool kHalf>
void divide(float* sums, std::int64_t count, float ranks) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] = math::mean_of<kHalf>(sums[i], ranks);
}

template <bool kHalf>
void add_errors(const float* __restrict errors, std::int64_t count, float* __restrict x) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = math::with_error<kHalf>(x[i], errors[i]);
}
template <math::GroupForm kForm, bool kHalf>
void keep_errors_as(const std::uint8_t* __restrict codes, std::int64_t count,
                    math::GroupPair stored, math::ErrorShares shares,
                    const float* __restrict wanted, float* __restrict errors) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto code = static_cast<float>(static_cast<std::int8_t>(codes[i]));
    errors[i] = math::error_after<kHalf>(shares, errors[i], wanted[i],
                                         math::group_value<float>(kForm, stored, code));
  }
}
template <bool kHalf>
void keep_errors(const std::uint8_t* codes, std::int64_t count, math::GroupForm form,
                 const math::GroupPair& stored, const math::ErrorShares& shares,
                 const float* wanted, float* errors) {
  if (form == math::GroupForm::Symmetric)
    keep_errors_as<math::GroupForm::Symmetric, kHalf>(codes, count, stored, shares, wanted, errors);
  else
    keep_errors_as<math::GroupForm::Asymmetric, kHalf>(codes, count, stored, shares, wanted,
                                                       errors);
}

template <bool kHalf>
constexpr SumLoops kLoopsOfSums{accumulate<kHalf>, divide<kHalf>, add_errors<kHalf>,
                                keep_errors<kHalf>};
constexpr SumLoops kSumLoops[] = {kLoopsOfSums<false>, kLoopsOfSums<true>};

// Fake quantization, in place.
template <bool kSymmetric, bool kStochastic>
void fake_as(float* __restrict x, const float* __restrict uniforms, std::int64_t count,
             const math::FakeSpec spec, const math::FakeScale scale) {
  for (std::int64_t i = 0; i < count; ++i)
    x[i] = math::faked<kSymmetric, kStochastic>(spec, scale, x[i], kStochastic ? uniforms[i] : 0);
}
inline void fake(float* x, const float* uniforms, std::int64_t count, const math::FakeSpec& spec,
                 const math::FakeScale& scale) {
  if (spec.symmetric && uniforms)
    fake_as<true, true>(x, uniforms, count, spec, scale);
  else if (spec.symmetric)
    fake_as<true, false>(x, uniforms, count, spec, scale);
  else if (uniforms)
    fake_as<false, true>(x, uniforms, count, spec, scale);
  else
    fake_as<false, false>(x, uniforms, count, spec, scale);
}

template <class T>
constexpr GroupLoops kLoops{widen<T>, narrow<T>, extend_range, encode<T>, decode<T>, fake};

}  // namespace planq::host::PLANQ_LEVEL
