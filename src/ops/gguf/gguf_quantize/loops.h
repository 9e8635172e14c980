// Blocks of numbers side by side, for one instruction set: units are lanes of vectors. No include
// guard: see host/instruction_sets.h.

#include "host/convert.h"
#include "ops/gguf/quantizer_loops.h"

namespace planq::host::PLANQ_LEVEL {

using gguf::Fit;
using gguf::Quantizer;
using gguf::PLANQ_LEVEL::Coder;
using gguf::PLANQ_LEVEL::Floats;
typedef std::int32_t Ints __attribute__((vector_size(PLANQ_VECTOR_BYTES), may_alias));

constexpr int kVectorLanes = PLANQ_VECTOR_BYTES / 4;
constexpr int kVectors = gguf_quantize::kLanes / kVectorLanes;

// What is computed of kLanes units, lane by lane.
template <int kUnit>
struct Lanes {
  Floats numbers[kVectors][kUnit];
  Floats first[kVectors]{}, second[kVectors]{};  // the fit, then the factors

  static float& at(Floats (&vectors)[kVectors], int lane) {
    return reinterpret_cast<float*>(vectors)[lane];
  }
  // Lanes without a unit compute with zeros.
  void load(const float* from, int units) {
    for (int lane = 0; lane < gguf_quantize::kLanes; ++lane) {
      float* const to =
          reinterpret_cast<float*>(numbers[lane / kVectorLanes]) + lane % kVectorLanes;
      for (int e = 0; e < kUnit; ++e)
        to[e * kVectorLanes] = lane < units ? from[lane * kUnit + e] : 0.0f;
    }
  }
};

// Four codes of each lane of a vector, which lie side by side in memory.
template <int kUnit>
inline void store_codes(const Floats (&codes)[4], std::uint8_t* to) {
  Ints words{};
  for (int i = 0; i < 4; ++i) words |= (__builtin_convertvector(codes[i], Ints) & 0xFF) << 8 * i;
  for (int lane = 0; lane < kVectorLanes; ++lane) {
    const std::int32_t word = words[lane];
    std::memcpy(to + lane * kUnit, &word, sizeof word);
  }
}

// The codes of a vector's lanes. `kept`: those of the search.
template <GgufType kType>
inline void code_units(const Floats* numbers, Floats first, Floats second, const Floats* kept,
                       std::uint8_t* to) {
  constexpr int kUnit = Quantizer<kType>::kUnit;
  for (int e = 0; e < kUnit; e += 4) {
    Floats codes[4];
    for (int i = 0; i < 4; ++i) {
      codes[i] = Coder<kType>::code(numbers[e + i], first, second);
      if constexpr (gguf::PLANQ_LEVEL::kKeepsCodes<kType>)
        codes[i] = first == 0.0f ? kept[e + i] : codes[i];
    }
    store_codes<kUnit>(codes, to + e);
  }
}

template <GgufType kType>
inline void fit_units(const Floats* numbers, Floats& first, Floats& second, Floats* kept) {
  constexpr int kUnit = Quantizer<kType>::kUnit;
  if constexpr (gguf::PLANQ_LEVEL::kKeepsCodes<kType>)
    Coder<kType>::template fit<kUnit>(numbers, first, second,
                                      [&](int e, Floats code) { kept[e] = code; });
  else
    Coder<kType>::template fit<kUnit>(numbers, first, second);
}

// Bytes of a block, part by part, so that each is a loop without conditions.
template <GgufType kType, int kPart = 0>
inline void store_block(const typename Quantizer<kType>::Head& head, const std::uint8_t* codes,
                        std::uint8_t* to) {
  using Q = Quantizer<kType>;
  for (int at = Q::kBounds[kPart]; at < Q::kBounds[kPart + 1]; ++at)
    to[at] = static_cast<std::uint8_t>(Q::byte(head, codes, at));
  if constexpr (Q::kBounds[kPart + 1] < Q::kBytes) store_block<kType, kPart + 1>(head, codes, to);
}

// At most kLanes units of whole blocks.
template <GgufType kType>
[[gnu::noinline]] void quantize_batch(const float* from, int blocks, std::uint8_t* to) {
  using Q = Quantizer<kType>;
  constexpr int kUnit = Q::kUnit, kUnits = Q::kElements / kUnit;
  Lanes<kUnit> lanes;
  lanes.load(from, blocks * kUnits);
  constexpr bool kKeeps = gguf::PLANQ_LEVEL::kKeepsCodes<kType>;
  Floats kept[kVectors][kKeeps ? kUnit : 1];
  for (int v = 0; v < kVectors; ++v)
    fit_units<kType>(lanes.numbers[v], lanes.first[v], lanes.second[v], kept[v]);

  typename Q::Head heads[gguf_quantize::kLanes / kUnits];
  for (int block = 0; block < blocks; ++block) {
    Fit fits[kUnits];
    for (int j = 0; j < kUnits; ++j) {
      const int lane = block * kUnits + j;
      fits[j] = {lanes.at(lanes.first, lane), lanes.at(lanes.second, lane)};
    }
    heads[block] = Q::head(fits);
    for (int j = 0; j < kUnits; ++j) {
      const gguf::Factors factors = Q::factors(heads[block], j);
      lanes.at(lanes.first, block * kUnits + j) = factors.first;
      lanes.at(lanes.second, block * kUnits + j) = factors.second;
    }
  }

  std::uint8_t codes[gguf_quantize::kLanes * kUnit];
  for (int v = 0; v < kVectors; ++v)
    code_units<kType>(lanes.numbers[v], lanes.first[v], lanes.second[v], kept[v],
                      codes + v * kVectorLanes * kUnit);
  for (int block = 0; block < blocks; ++block)
    store_block<kType>(heads[block], codes + block * Q::kElements, to + block * Q::kBytes);
}

// The numbers in float32. The count is hidden: of one that is known to leave no rest, gcc warns of
// the loop of the rest.
template <class T>
[[gnu::noinline]] const float* widened(const T* from, std::int64_t count, float* to) {
  __asm__("" : "+r"(count));
  widen<T>(from, count, to);
  return to;
}
inline const float* widened(const float* from, std::int64_t, float*) { return from; }

template <class T, GgufType kType>
void quantize_blocks(const void* from, std::int64_t blocks, std::uint8_t* to) {
  using Q = Quantizer<kType>;
  constexpr int kTogether = gguf_quantize::kLanes * Q::kUnit / Q::kElements;
  const T* numbers = static_cast<const T*>(from);
  float wide[kTogether * Q::kElements];
  for (; blocks > 0; blocks -= kTogether) {
    const int count = static_cast<int>(blocks < kTogether ? blocks : kTogether);
    quantize_batch<kType>(widened(numbers, count * Q::kElements, wide), count, to);
    numbers += count * Q::kElements;
    to += count * Q::kBytes;
  }
}

}  // namespace planq::host::PLANQ_LEVEL
