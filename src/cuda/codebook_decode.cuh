// Codes of a codebook to elements. Vectors are for blocks of whole vectors, all of them
// consecutive; everything else goes element by element. A block of threads stays for the sake of
// its tables.
#pragma once

#include "core/codebook.h"
#include "cuda/affine.cuh"
#include "cuda/codebook_layout.cuh"
#include "cuda/codebook_search.cuh"

namespace planq::cuda {

inline constexpr int kDecodeThreads = 256;
inline constexpr int kDecodeVectors = 1;  // of a thread
inline constexpr int kDecodeTile = kDecodeVectors * kDecodeThreads;

template <class Out>
struct DecodeArgs {
  using C = math::Compute<Out>;
  const std::uint8_t* input;
  Out* output;
  const void* absmax;         // one a block, or its code; null: there are none
  DType absmax_dtype;         // of absmax that are no codes, of nested ones, of their offset
  const void* nested_absmax;  // null: absmax are no codes
  const void* nested_offset;
  CodebookSource source, nested;
  std::int64_t count;
  std::uint32_t vectors, tail;
  Divider block_vectors, nested_blocks;
  std::int64_t block_size, nested_size;
  NibbleOrder order;
};

// Values by code. Lanes look up 4-bit codes each in a bank of its own.
template <bool kNibble>
struct ValueTable {
  static constexpr int kCodes = kNibble ? 16 : 256, kCopies = kNibble ? kWarp : 1;
  float values[kCodes][kCopies];

  // Whether all values are numbers.
  __device__ __forceinline__ bool build(const CodebookSource& source, const float* dynamic) {
    bool numbers = true;
    for (int i = static_cast<int>(threadIdx.x); i < kCodes * kCopies; i += blockDim.x) {
      const int code = i / kCopies;
      float value;
      if (source.given)
        value =
            code < source.entries ? load_single(source.given + code) : math::canonical_nan<float>();
      else
        value = kNibble ? source.nibbles.value[code % 16] : dynamic[code];
      numbers = numbers && math::is_finite(value);
      values[code][i % kCopies] = value;
    }
    return __syncthreads_and(numbers);
  }
  __device__ __forceinline__ std::uint32_t base() const {
    return static_cast<std::uint32_t>(
        __cvta_generic_to_shared(&values[0][kNibble ? threadIdx.x % kWarp : 0]));
  }
};
__device__ __forceinline__ float load_value(std::uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address));
  return value;
}

// Codes of a vector as the words they lie in.
template <class Out, bool kNibble>
struct CodeVector {
  static constexpr int kCount = kPerVector<Out>, kBytes = kCodeBytes<Out, kNibble>;
  std::uint32_t words[(kBytes + 3) / 4];

  __device__ __forceinline__ void load(const std::uint8_t* from) {
    const auto word = load_single(reinterpret_cast<const Word<kBytes>*>(from));
    words[0] = static_cast<std::uint32_t>(word);
    if constexpr (kBytes == 8) words[1] = static_cast<std::uint32_t>(word >> 32);
  }
  // Value j.
  __device__ __forceinline__ float value(std::uint32_t base, int j, bool low_first) const {
    if constexpr (kNibble) {
      // A code's nibble at bits 7 to 10 is the offset of its values.
      const int at = 4 * (low_first ? j : j ^ 1);
      const std::uint32_t moved = at < 7 ? words[0] << (7 - at) : words[0] >> (at - 7);
      return load_value((moved & 0x780u) + base);
    } else {
      const int at = 8 * (j % 4);
      const std::uint32_t moved = at == 0 ? words[j / 4] << 2 : words[j / 4] >> (at - 2);
      return load_value((moved & 0x3FCu) + base);
    }
  }
};

// What a block's absmax is made of.
template <class C>
struct StoredAbsmax {
  C value;  // absmax itself, or nested absmax
  std::uint32_t code;
};

// A number of the type of absmax.
template <class C>
__device__ __forceinline__ C load_statistic(const void* values, DType dtype, std::int64_t at) {
  if (sizeof(C) == 8 && dtype == DType::Float64)
    return static_cast<C>(load_single(static_cast<const double*>(values) + at));
  return static_cast<C>(load_single(static_cast<const float*>(values) + at));
}

template <class Out>
__device__ __forceinline__ StoredAbsmax<math::Compute<Out>> load_absmax(const DecodeArgs<Out>& args,
                                                                        std::int64_t block,
                                                                        std::int64_t nested) {
  using C = math::Compute<Out>;
  if (!args.absmax) return {C{1}, 0};
  if (args.nested_absmax)
    return {load_statistic<C>(args.nested_absmax, args.absmax_dtype, nested),
            load_single(static_cast<const std::uint8_t*>(args.absmax) + block)};
  return {load_statistic<C>(args.absmax, args.absmax_dtype, block), 0};
}

template <class Out, bool kNibble>
struct DecodeTables {
  using C = math::Compute<Out>;
  ValueTable<kNibble> values;
  ValueTable<false> nested;

  // Whether all values of the codebook are numbers.
  __device__ __forceinline__ bool build(const DecodeArgs<Out>& args, const float* dynamic) {
    if (args.nested_absmax) nested.build(args.nested, dynamic);
    return values.build(args.source, dynamic);
  }
  __device__ __forceinline__ C absmax(const DecodeArgs<Out>& args, const StoredAbsmax<C>& stored,
                                      C offset) const {
    if (!args.nested_absmax) return stored.value;
    return math::restored_absmax(nested.values[stored.code & 0xFFu][0], stored.value, offset);
  }
};

template <class Out>
__device__ __forceinline__ math::Compute<Out> nested_offset(const DecodeArgs<Out>& args) {
  using C = math::Compute<Out>;
  return args.nested_absmax ? load_statistic<C>(args.nested_offset, args.absmax_dtype, 0) : C{0};
}

// Elements one by one, for the end of a tensor and for layouts without vectors.
template <class Out, bool kNibble>
__device__ __forceinline__ Out decoded_element(const DecodeArgs<Out>& args,
                                               const DecodeTables<Out, kNibble>& tables,
                                               std::uint8_t code, std::int64_t index,
                                               math::Compute<Out> offset) {
  using C = math::Compute<Out>;
  const C value = static_cast<C>(tables.values.values[code][0]);
  if (!args.absmax) return math::narrow<Out>(value);
  const std::int64_t block = index / args.block_size;
  const auto stored = load_absmax(args, block, args.nested_absmax ? block / args.nested_size : 0);
  return math::narrow<Out>(value * tables.absmax(args, stored, offset));
}

template <class Out, bool kNibble>
__device__ __forceinline__ std::uint8_t code_at(const DecodeArgs<Out>& args, std::int64_t index,
                                                std::int64_t place) {
  const std::uint8_t byte = load_single(args.input + (kNibble ? index / 2 : place));
  if constexpr (!kNibble) return byte;
  const bool low = (index % 2 == 0) == (args.order == NibbleOrder::LowFirst);
  return low ? byte & 15u : byte >> 4;
}

template <class Out, bool kNibble>
__device__ __forceinline__ void decode_all_vectors(const DecodeArgs<Out>& args,
                                                   const float* dynamic) {
  using C = math::Compute<Out>;
  using Codes = CodeVector<Out, kNibble>;
  __shared__ DecodeTables<Out, kNibble> tables;
  struct Loaded {
    Codes codes;
    StoredAbsmax<C> absmax;
  };
  const auto index_of = [&](std::uint32_t tile, int i) {
    return tile * kDecodeTile + i * kDecodeThreads + threadIdx.x;
  };
  const auto load = [&](Loaded(&to)[kDecodeVectors], std::uint32_t tile) {
#pragma unroll
    for (int i = 0; i < kDecodeVectors; ++i) {
      const std::uint32_t at = index_of(tile, i);
      if (at >= args.vectors) continue;
      to[i].codes.load(args.input + std::int64_t{at} * Codes::kBytes);
      const std::uint32_t block = args.block_vectors.quotient(at);
      to[i].absmax =
          load_absmax(args, block, args.nested_absmax ? args.nested_blocks.quotient(block) : 0);
    }
  };
  const std::uint32_t tiles = (args.vectors + kDecodeTile - 1) / kDecodeTile;
  Loaded loaded[kDecodeVectors] = {};
  load(loaded, blockIdx.x);
  const C offset = nested_offset(args);
  const bool numbers = tables.build(args, dynamic);
  const std::uint32_t base = tables.values.base();
  const bool low_first = args.order == NibbleOrder::LowFirst;
#pragma unroll 1
  for (std::uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    Loaded next[kDecodeVectors] = {};
    load(next, tile + gridDim.x);
#pragma unroll
    for (int i = 0; i < kDecodeVectors; ++i) {
      const std::uint32_t at = index_of(tile, i);
      if (at >= args.vectors) continue;
      const C absmax = tables.absmax(args, loaded[i].absmax, offset);
      C values[Codes::kCount];
#pragma unroll
      for (int j = 0; j < Codes::kCount; ++j)
        values[j] = static_cast<C>(loaded[i].codes.value(base, j, low_first)) * absmax;
      auto vector = narrow_vector<Out>(values);
      if (!numbers || !math::is_finite(absmax)) {
        Out stored[Codes::kCount];
#pragma unroll
        for (int j = 0; j < Codes::kCount; ++j) stored[j] = math::narrow<Out>(values[j]);
        memcpy(&vector, stored, sizeof vector);
      }
      store_vector(args.output + std::int64_t{at} * Codes::kCount, vector);
    }
#pragma unroll
    for (int i = 0; i < kDecodeVectors; ++i) loaded[i] = next[i];
  }
  if (blockIdx.x == 0 && threadIdx.x < args.tail) {
    const std::int64_t index = std::int64_t{args.vectors} * Codes::kCount + threadIdx.x;
    store_single(args.output + index,
                 decoded_element<Out, kNibble>(
                     args, tables, code_at<Out, kNibble>(args, index, index), index, offset));
  }
}

template <class Out>
struct ElementDecodeArgs {
  DecodeArgs<Out> decode;
  ElementPlaces places, code_places;
};

// A thread for each element, in turns.
template <class Out, bool kNibble>
__device__ __forceinline__ void decode_all_elements(const ElementDecodeArgs<Out>& args,
                                                    const float* dynamic) {
  __shared__ DecodeTables<Out, kNibble> tables;
  tables.build(args.decode, dynamic);
  const auto offset = nested_offset(args.decode);
  const std::int64_t threads = std::int64_t{gridDim.x} * kCodebookThreads;
#pragma unroll 1
  for (std::int64_t index = std::int64_t{blockIdx.x} * kCodebookThreads + threadIdx.x;
       index < args.decode.count; index += threads) {
    const std::int64_t place = kNibble ? 0 : args.code_places[index];
    store_single(
        args.decode.output + args.places[index],
        decoded_element<Out, kNibble>(
            args.decode, tables, code_at<Out, kNibble>(args.decode, index, place), index, offset));
  }
}

}  // namespace planq::cuda
