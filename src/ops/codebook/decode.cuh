// Decodes codes of a codebook to elements. Contiguous tensors whose blocks are whole vectors are
// decoded by vectors of 16 bytes, everything else element by element.
#pragma once

#include "ops/affine/affine.cuh"
#include "ops/codebook/codebook.h"
#include "ops/codebook/layout.cuh"
#include "ops/codebook/search.cuh"

namespace planq::cuda {

// Measured optimum: thread blocks are small, since all threads wait until the table is loaded, and
// each thread has several loads in flight.
template <class Out>
inline constexpr int kDecodeThreads = sizeof(Out) == 2 ? 64 : 128;
template <class Out>
inline constexpr int kDecodeBlocks = (sizeof(Out) == 8 ? 1024 : 2048) / kDecodeThreads<Out>;
template <class Out>
inline constexpr int kDecodeVectors = sizeof(Out) == 2 ? 2 : 3;  // of a thread
template <class Out>
inline constexpr int kDecodeTile = kDecodeVectors<Out> * kDecodeThreads<Out>;

// Values by code of the compiled-in tables.
struct CompiledValues {
  float bytes[256], nibbles[4][16];
};
constexpr CompiledValues compiled_values() {
  constexpr const math::NibbleTable* kTables[] = {&math::kNf4Table, &math::kFp4Table,
                                                  &math::kInt4Table, &math::kAf4Table};
  CompiledValues values{};
  for (int i = 0; i < 256; ++i) values.bytes[i] = math::kDynamicTable.value[i];
  for (int table = 0; table < 4; ++table)
    for (int i = 0; i < 16; ++i) values.nibbles[table][i] = kTables[table]->value[i];
  return values;
}

// Where the values of codes come from: a given codebook in memory, or a compiled-in one.
struct ValueSource {
  const float* given;
  int entries;
  int table;  // of CompiledValues::nibbles

  // What a code stands for.
  template <bool kNibble>
  __device__ __forceinline__ float value(const CompiledValues& compiled, int code) const {
    if (!given) return kNibble ? compiled.nibbles[table][code] : compiled.bytes[code];
    return code < entries ? __ldg(given + code) : math::canonical_nan<float>();
  }
};

template <class Out>
struct DecodeArgs {
  using C = math::Compute<Out>;
  const std::uint8_t* input;
  Out* output;
  const void* absmax;         // one a block, or its code; null: there are none
  DType absmax_dtype;         // of absmax that are no codes, of nested ones, of their offset
  const void* nested_absmax;  // null: absmax are no codes
  const void* nested_offset;
  ValueSource source;
  const float* nested_values;  // by code
  std::int64_t count;
  std::uint32_t vectors, tail;
  Divider block_vectors, nested_blocks;
  std::int64_t block_size, nested_size;
  NibbleOrder order;
};

// The table of values by code: for 4-bit codes in the lanes of a warp, for 8-bit codes in shared
// memory.
template <bool kNibble, int kThreads>
struct ValueTable {
  static constexpr int kCodes = 16;
  float value;   // of this lane's code
  bool numbers;  // whether all values are finite

  __device__ __forceinline__ ValueTable(const ValueSource& source, const CompiledValues& compiled,
                                        float*)
      : value(source.value<true>(compiled, static_cast<int>(threadIdx.x % kCodes))),
        numbers(__all_sync(kAllLanes, math::is_finite(value))) {}
  // All lanes of the warp call this. Only the bits of a code are used.
  __device__ __forceinline__ float operator[](std::uint32_t code) const {
    return __shfl_sync(kAllLanes, value, static_cast<int>(code), kCodes);
  }
};
template <int kThreads>
struct ValueTable<false, kThreads> {
  static constexpr int kCodes = 256;
  std::uint32_t address;
  bool numbers;

  __device__ __forceinline__ ValueTable(const ValueSource& source, const CompiledValues& compiled,
                                        float* shared)
      : address(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))), numbers(true) {
#pragma unroll
    for (int i = 0; i < kCodes; i += kThreads) {
      const float value = source.value<false>(compiled, i + static_cast<int>(threadIdx.x));
      numbers = numbers && math::is_finite(value);
      shared[i + threadIdx.x] = value;
    }
    numbers = __syncthreads_and(numbers);
  }
  // Takes an offset in bytes: four times the code.
  __device__ __forceinline__ float operator[](std::uint32_t offset) const {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address + offset));
    return value;
  }
};

// The codes of a vector of elements, in the words that hold them.
template <class Out, bool kNibble>
struct CodeVector {
  static constexpr int kCount = kPerVector<Out>, kBytes = kCodeBytes<Out, kNibble>;
  std::uint32_t words[(kBytes + 3) / 4];

  __device__ __forceinline__ void load(const std::uint8_t* from) {
    const auto word = load_single(reinterpret_cast<const Word<kBytes>*>(from));
    words[0] = static_cast<std::uint32_t>(word);
    if constexpr (kBytes == 8) words[1] = static_cast<std::uint32_t>(word >> 32);
  }
  // Moves the first of two codes to the lower half of its byte.
  __device__ __forceinline__ void put_low_first(NibbleOrder order) {
    if (kNibble && order == NibbleOrder::HighFirst)
      words[0] = (words[0] & 0x0F0F0F0Fu) << 4 | (words[0] >> 4 & 0x0F0F0F0Fu);
  }
  // Value j.
  template <class Table>
  __device__ __forceinline__ float value(const Table& values, int j) const {
    if constexpr (kNibble) {
      return values[words[0] >> (4 * j)];
    } else {
      const int at = 8 * (j % 4);
      return values[(at == 0 ? words[j / 4] << 2 : words[j / 4] >> (at - 2)) & 0x3FCu];
    }
  }
};

// What a block's absmax is computed from.
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

template <class Out>
__device__ __forceinline__ math::Compute<Out> whole_absmax(
    const DecodeArgs<Out>& args, const StoredAbsmax<math::Compute<Out>>& stored,
    math::Compute<Out> offset) {
  if (!args.nested_absmax) return stored.value;
  return math::restored_absmax(__ldg(args.nested_values + stored.code), stored.value, offset);
}

template <class Out>
__device__ __forceinline__ math::Compute<Out> nested_offset(const DecodeArgs<Out>& args) {
  using C = math::Compute<Out>;
  return args.nested_absmax ? load_statistic<C>(args.nested_offset, args.absmax_dtype, 0) : C{0};
}

// Decodes one element, for the end of a tensor and for strides that vectors do not fit.
template <class Out, bool kNibble>
__device__ __forceinline__ Out decoded_element(const DecodeArgs<Out>& args,
                                               const CompiledValues& compiled, std::int64_t index,
                                               std::int64_t place, math::Compute<Out> offset) {
  using C = math::Compute<Out>;
  std::uint8_t code = load_single(args.input + (kNibble ? index / 2 : place));
  if constexpr (kNibble) {
    const bool low = (index % 2 == 0) == (args.order == NibbleOrder::LowFirst);
    code = low ? code & 15u : code >> 4;
  }
  const C value = static_cast<C>(args.source.template value<kNibble>(compiled, code));
  if (!args.absmax) return math::narrow<Out>(value);
  const std::int64_t block = index / args.block_size;
  const auto stored = load_absmax(args, block, args.nested_absmax ? block / args.nested_size : 0);
  return math::narrow<Out>(value * whole_absmax(args, stored, offset));
}

template <class Out, bool kNibble>
__device__ __forceinline__ void decode_all_vectors(const DecodeArgs<Out>& args,
                                                   const CompiledValues& compiled) {
  using C = math::Compute<Out>;
  using Codes = CodeVector<Out, kNibble>;
  using Table = ValueTable<kNibble, kDecodeThreads<Out>>;
  constexpr int kVectors = kDecodeVectors<Out>;
  __shared__ float shared[kNibble ? 1 : Table::kCodes];
  const std::uint32_t first = blockIdx.x * kDecodeTile<Out> + threadIdx.x;
  Codes codes[kVectors] = {};
  StoredAbsmax<C> stored[kVectors] = {};
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const std::uint32_t at = first + i * kDecodeThreads<Out>;
    if (at >= args.vectors) continue;
    codes[i].load(args.input + std::int64_t{at} * Codes::kBytes);
    const std::uint32_t block = args.block_vectors.quotient(at);
    stored[i] =
        load_absmax(args, block, args.nested_absmax ? args.nested_blocks.quotient(block) : 0);
  }
  const C offset = nested_offset(args);
  const Table table(args.source, compiled, shared);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    codes[i].put_low_first(args.order);
    const C absmax = whole_absmax(args, stored[i], offset);
    C values[Codes::kCount];
#pragma unroll
    for (int j = 0; j < Codes::kCount; ++j)
      values[j] = static_cast<C>(codes[i].value(table, j)) * absmax;
    auto vector = narrow_vector<Out>(values);
    if (!table.numbers || !math::is_finite(absmax)) {
      Out narrowed[Codes::kCount];
#pragma unroll
      for (int j = 0; j < Codes::kCount; ++j) narrowed[j] = math::narrow<Out>(values[j]);
      memcpy(&vector, narrowed, sizeof vector);
    }
    const std::uint32_t at = first + i * kDecodeThreads<Out>;
    if (at < args.vectors) store_vector(args.output + std::int64_t{at} * Codes::kCount, vector);
  }
  if (blockIdx.x == 0 && threadIdx.x < args.tail) {
    const std::int64_t index = std::int64_t{args.vectors} * Codes::kCount + threadIdx.x;
    store_single(args.output + index,
                 decoded_element<Out, kNibble>(args, compiled, index, index, offset));
  }
}

template <class Out>
struct ElementDecodeArgs {
  DecodeArgs<Out> decode;
  ElementPlaces places, code_places;
};

// A thread for each element, in a grid-stride loop.
template <class Out, bool kNibble>
__device__ __forceinline__ void decode_all_elements(const ElementDecodeArgs<Out>& args,
                                                    const CompiledValues& compiled) {
  const auto offset = nested_offset(args.decode);
  const std::int64_t threads = std::int64_t{gridDim.x} * kCodebookThreads;
#pragma unroll 1
  for (std::int64_t index = std::int64_t{blockIdx.x} * kCodebookThreads + threadIdx.x;
       index < args.decode.count; index += threads) {
    const std::int64_t place = kNibble ? 0 : args.code_places[index];
    store_single(args.decode.output + args.places[index],
                 decoded_element<Out, kNibble>(args.decode, compiled, index, place, offset));
  }
}

}  // namespace planq::cuda
