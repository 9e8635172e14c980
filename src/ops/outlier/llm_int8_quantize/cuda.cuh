// llm_int8_quantize on CUDA: a kernel clears the workspace (Room), and two kernels each read the
// input once. The first finds every row's largest magnitude and marks outlier columns, by atomic
// operations on integers, whose order does not matter. The second writes codes and outlier values.
// Each of its thread blocks computes the list of columns itself, and the first one stores it. If
// there are too many columns for that, the last thread block of the first kernel makes the list.
//
// A warp takes a span of a row: 16-byte vectors, from the first aligned address of the row on. The
// elements of the row before and after its vectors belong to the first span.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/scratch.h"
#include "core/sku.h"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/lines.cuh"
#include "cuda/scan.cuh"
#include "cuda/ticket.cuh"
#include "ops/affine/segments/encode.cuh"
#include "ops/outlier/llm_int8_quantize/desc.h"

namespace planq::llm_int8_quantize {
namespace {

using cuda::kAllLanes;
using cuda::kPerVector;
using cuda::kWarp;
using In = cuda::Element;
using Line = cuda::AlignedLine<In>;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
// The vectors that a lane has in flight, and the vectors of a span.
constexpr int kBatch = 4, kSpanVectors = kBatch * kWarp;
constexpr int64_t kMostBlocks = int64_t{1} << 30;
// Thread blocks per multiprocessor.
constexpr int kBlocks = 3;
// The most words of column bits for which every thread block makes the list itself, per thread and
// in all.
constexpr int kOwnWords = 4, kMostOwnWords = kOwnWords * kThreads;
// The fewest rows for which it pays to check whether a column is marked already.
constexpr int64_t kManyRows = 256;

// The workspace. The first three pieces are cleared by the first kernel.
struct Room {
  std::uint32_t* largest;  // of each row
  std::uint32_t* columns;  // a bit for each column: it has an outlier
  std::uint32_t* arrived;  // thread blocks of the first kernel that are done
  std::uint32_t* listed;   // a bit for each column: it is in the list
  std::uint32_t* before;   // for each word of columns, the listed columns before it
  std::size_t cleared, bytes;

  Room(const Fields& f, Scratch scratch) {
    const auto words = static_cast<std::size_t>(column_words(f.shape));
    largest = scratch.take<std::uint32_t>(static_cast<std::size_t>(outlier::rows_of(f.shape)));
    columns = scratch.take<std::uint32_t>(words);
    arrived = scratch.take<std::uint32_t>(1);
    cleared = scratch.bytes();
    listed = scratch.take<std::uint32_t>(words);
    before = scratch.take<std::uint32_t>(words);
    bytes = scratch.bytes();
  }
};

struct Args {
  const In* input;
  std::int8_t* output;
  float* scale;
  std::int32_t* index;
  int64_t* count;
  In* outlier;
  IndexSpace rows;
  cuda::LineDivider spans;  // of a row
  int64_t units, columns, words, capacity;
  Room room;
  ElementRule<In> rule;
  math::AffineSpec<float> spec;
  bool many_rows;

  // Whether every thread block makes the list itself.
  __device__ __forceinline__ bool lists_itself() const { return words <= kMostOwnWords; }
};

// A warp's part of a row.
struct Span {
  int64_t row;
  Offsets at;
  Line line;
  int64_t first;  // vector
  bool leads;     // its row

  __device__ __forceinline__ Span(const Args& args, int64_t unit)
      : row(args.spans.quotient(unit)),
        at(args.rows.offsets(row)),
        line(args.input + at.at[kRowInput], args.columns),
        first((unit - row * args.spans.divisor) * kSpanVectors),
        leads(first == 0) {}
  __device__ __forceinline__ int64_t column(int64_t vector) const {
    return line.head + vector * kPerVector<In>;
  }
  // The column of the single element outside of vectors that this lane has, if any.
  __device__ __forceinline__ int64_t edge_column(int lane) const {
    return lane < kPerVector<In> ? lane : column(line.vectors) + (lane - kPerVector<In>);
  }
};

__device__ __forceinline__ In element(const uint4& v, int i) {
  const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
  constexpr int kPerWord = 4 / sizeof(In);
  const std::uint32_t bits = words[i / kPerWord] >> (8 * sizeof(In) * (i % kPerWord));
  return math::bit_cast<In>(static_cast<cuda::Word<sizeof(In)>>(bits));
}

// Raises `largest` by the magnitudes below `least`; for 16-bit elements it holds two, one in each
// half. Returns whether there are magnitudes that are not below `least`.
__device__ __forceinline__ bool add_magnitudes(const uint4& v, std::uint32_t least,
                                               std::uint32_t& largest) {
  const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
  std::uint32_t above = 0;
  if constexpr (sizeof(In) == 2) {
    // A sum sets the sign bit of its half exactly from `least` on, and never carries into the next.
    const std::uint32_t lack = (0x8000u - least) * 0x00010001u;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t own = words[i] & 0x7FFF7FFFu, sum = own + lack;
      largest = __vmaxu2(largest, own & ~cuda::signs_of_halves(sum));
      above |= sum & 0x80008000u;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t own = words[i] & 0x7FFFFFFFu;
      const bool below = own < least;
      largest = max(largest, below ? own : 0u);
      above |= below ? 0u : 1u;
    }
  }
  return above != 0;
}

// A bit for each element of a vector whose magnitude is not below `least`.
__device__ __forceinline__ std::uint32_t elements_from(const uint4& v, std::uint32_t least) {
  const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
  std::uint32_t mask = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(In) == 2) {
      const std::uint32_t sum = (words[i] & 0x7FFF7FFFu) + (0x8000u - least) * 0x00010001u;
      mask |= (sum & 0x80008000u) >> (15 - 2 * i);  // of elements 2 i and 2 i + 1: 15 bits apart
    } else {
      mask |= ((words[i] & 0x7FFFFFFFu) >= least ? 1u : 0u) << i;
    }
  }
  return sizeof(In) == 2 ? (mask | mask >> 15) & 0xFFu : mask;
}

// A bit for each outlier of a vector that has elements not below `least`. NaN and infinities are no
// outliers; under PROPAGATE they raise `largest`.
__device__ __forceinline__ std::uint32_t judge(const ElementRule<In>& rule, const uint4& v,
                                               std::uint32_t& largest) {
  const std::uint32_t special = elements_from(v, outlier::kInfinity<In>);
  if (special != 0 && rule.propagate) {
#pragma unroll
    for (int i = 0; i < kPerVector<In>; ++i)
      if (special >> i & 1u)
        largest = max(largest, std::uint32_t{outlier::magnitude_of(element(v, i))});
  }
  return elements_from(v, rule.least) & ~special;
}

// Marks columns from `column` on, by a bit for each element of a vector.
struct Marks {
  std::uint32_t *word, bits, beyond, held;

  __device__ __forceinline__ Marks(const Args& args, int64_t column, std::uint32_t mask)
      : word(args.room.columns + column / kWordColumns), bits(0), beyond(0), held(0) {
    if (mask == 0) return;
    const int shift = static_cast<int>(column % kWordColumns);
    bits = mask << shift;
    if (shift > kWordColumns - kPerVector<In>) beyond = mask >> (kWordColumns - shift);
    if (args.many_rows) held = __ldcg(word);
  }
  __device__ __forceinline__ void store() const {
    if (bits & ~held) atomicOr(word, bits);
    if (beyond != 0) atomicOr(word + 1, beyond);
  }
};

// Loads a lane's vectors of a span, with 0 after the last one. kAgain: they are read again later.
template <bool kAgain>
__device__ __forceinline__ void load_span(const Span& span, int lane, uint4 (&v)[kBatch]) {
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    const int64_t vector = span.first + k * kWarp + lane;
    v[k] = make_uint4(0, 0, 0, 0);
    if (vector >= span.line.vectors) continue;
    const In* from = span.line.input + vector * kPerVector<In>;
    v[k] = kAgain ? cuda::load_kept(from) : cuda::load_once(from);
  }
}

// Measures this lane's element outside of the row's vectors: raises `largest` and marks its column.
__device__ __forceinline__ void measure_edge(const Args& args, const Span& span, int lane,
                                             std::uint32_t& largest) {
  const Magnitude<In> own = outlier::magnitude_of(*span.line.edge(lane));
  if (own < args.rule.least || args.rule.gives_up(own)) largest = max(largest, std::uint32_t{own});
  Marks(args, span.edge_column(lane), args.rule.is_outlier(own) ? 1u : 0u).store();
}

__device__ __forceinline__ void measure_span(const Args& args, const Span& span, int lane) {
  uint4 v[kBatch];
  load_span<true>(span, lane, v);
  cuda::wait_for_previous();  // the kernel that clears the workspace
  std::uint32_t packed = 0, largest = 0, masks[kBatch];
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    masks[k] = 0;
    if (add_magnitudes(v[k], args.rule.least, packed)) masks[k] = judge(args.rule, v[k], largest);
  }
  if (sizeof(In) == 2) packed = max(packed & 0xFFFFu, packed >> 16);
  largest = max(largest, packed);
  if (span.leads && span.line.has_edge(lane)) measure_edge(args, span, lane, largest);
  largest = __reduce_max_sync(kAllLanes, largest);
  if (lane == 0 && largest > 0) atomicMax(args.room.largest + span.row, largest);
  std::uint32_t any = 0;
#pragma unroll
  for (int k = 0; k < kBatch; ++k) any |= masks[k];
  if (any == 0) return;
  const auto marks = [&](int k) {
    return Marks(args, span.column(span.first + k * kWarp + lane), masks[k]);
  };
  const Marks all[kBatch] = {marks(0), marks(1), marks(2), marks(3)};  // loads them together
#pragma unroll
  for (int k = 0; k < kBatch; ++k) all[k].store();
}

// The columns of one word that fit into the list from position `at` on. If `writes`, stores them.
__device__ __forceinline__ std::uint32_t list_word(const Args& args, int64_t word,
                                                   std::uint32_t bits, std::uint32_t at,
                                                   bool writes) {
  if (!writes && at + __popc(bits) <= args.capacity) return bits;
  std::uint32_t kept = 0;
#pragma unroll 1
  for (; bits != 0 && at < args.capacity; bits &= bits - 1, ++at) {
    kept |= bits & (0u - bits);
    if (writes) args.index[at] = static_cast<std::int32_t>(word * kWordColumns + (__ffs(bits) - 1));
  }
  return kept;
}

// Stores the number of outlier columns, and marks the remaining positions of the list as empty.
__device__ __forceinline__ void end_list(const Args& args, std::uint32_t count) {
  if (threadIdx.x == 0) *args.count = count;
#pragma unroll 1
  for (int64_t j = int64_t{count} + threadIdx.x; j < args.capacity; j += kThreads)
    args.index[j] = outlier::kNoIndex;
}

// The listed columns as bits, and for each word the number of listed columns before it.
struct Listed {
  const std::uint32_t *columns, *before;
  int64_t count;

  // A bit for each element of a vector from `column` on: whether its column is listed.
  __device__ __forceinline__ std::uint32_t from(int64_t column) const {
    const std::uint32_t* word = columns + column / kWordColumns;
    const int shift = static_cast<int>(column % kWordColumns);
    std::uint32_t bits = word[0] >> shift;
    if (shift > kWordColumns - kPerVector<In>) bits |= word[1] << (kWordColumns - shift);
    return bits & ((1u << kPerVector<In>)-1);
  }
  // The number of listed columns before a column: the position of a listed column in the list.
  __device__ __forceinline__ int64_t place_of(int64_t column) const {
    const int64_t word = column / kWordColumns;
    const std::uint32_t below = (1u << (column % kWordColumns)) - 1;
    return int64_t{before[word]} + __popc(columns[word] & below);
  }
};

// Makes the list in the workspace, for many columns.
__device__ __forceinline__ void list_in_room(const Args& args) {
  std::uint32_t count = 0;
#pragma unroll 1
  for (int64_t first = 0; first < args.words; first += kThreads) {
    const int64_t word = first + threadIdx.x;
    const std::uint32_t bits = word < args.words ? __ldcg(args.room.columns + word) : 0u;
    const auto sum = cuda::sum_block<kThreads, std::uint32_t>(__popc(bits));
    const std::uint32_t at = count + sum.before;
    count += sum.all;
    if (word >= args.words) continue;
    args.room.listed[word] = list_word(args, word, bits, at, true);
    args.room.before[word] = at;
  }
  end_list(args, count);
}

// Makes the list in shared memory, for few columns. All threads of the thread block call this.
__device__ __forceinline__ Listed list_in_block(const Args& args) {
  __shared__ std::uint32_t columns[kMostOwnWords], before[kMostOwnWords];
  const int first = static_cast<int>(threadIdx.x) * kOwnWords;
  std::uint32_t bits[kOwnWords], number = 0;
#pragma unroll
  for (int i = 0; i < kOwnWords; ++i) {
    bits[i] = first + i < args.words ? __ldcg(args.room.columns + first + i) : 0u;
    number += __popc(bits[i]);
  }
  const auto sum = cuda::sum_block<kThreads>(number);
  std::uint32_t at = sum.before;
  const bool writes = blockIdx.x == 0;
#pragma unroll
  for (int i = 0; i < kOwnWords; ++i) {
    columns[first + i] = list_word(args, first + i, bits[i], at, writes);
    before[first + i] = at;
    at += __popc(bits[i]);
  }
  __syncthreads();
  if (writes) end_list(args, sum.all);
  return {columns, before, sum.all};
}

__global__ void __launch_bounds__(kThreads) clear_room(const __grid_constant__ Args args) {
  cuda::let_dependents_start();
  const std::size_t first = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = first; i < args.room.cleared / sizeof(uint4); i += stride)
    reinterpret_cast<uint4*>(args.room.largest)[i] = make_uint4(0, 0, 0, 0);
}

__global__ void __launch_bounds__(kThreads) measure_rows(const __grid_constant__ Args args) {
  cuda::let_dependents_start();
  const int lane = threadIdx.x % kWarp;
#pragma unroll 1
  for (int64_t unit = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; unit < args.units;
       unit += int64_t{gridDim.x} * kWarps)
    measure_span(args, Span(args, unit), lane);
  cuda::wait_for_previous();  // warps without a span have not waited yet
  if (!args.lists_itself() && cuda::comes_last(args.room.arrived)) list_in_room(args);
}

// --- Codes ---------------------------------------------------------------------------------------

// The parameters of a row.
struct RowNumbers {
  math::SegmentParameters<float> parameters;
  affine::Numbers<float> numbers;
  bool fast;  // for elements below `least`

  __device__ __forceinline__ RowNumbers(const Args& args, Magnitude<In> largest)
      : parameters(row_parameters<In>(args.spec, largest)), numbers(parameters, args.spec) {
    const bool special = largest >= outlier::kInfinity<In>;
    const float peak = special ? 0.0f : math::widen(outlier::element_of<In>(largest));
    fast = affine::is_fast(args.spec, parameters, math::Range<float>{0.0f, peak, special});
  }
};

// A byte of ones for each element whose bit is set.
using CodeWord = cuda::Word<kPerVector<In>>;
__device__ __forceinline__ std::uint32_t bytes_of_four(std::uint32_t bits) {
  return ((bits & 0xFu) * 0x00204081u & 0x01010101u) * 0xFFu;
}
__device__ __forceinline__ CodeWord bytes_of(std::uint32_t bits) {
  const std::uint64_t upper = bytes_of_four(bits >> 4);
  return static_cast<CodeWord>(upper << 32 | bytes_of_four(bits));
}

// Codes of a vector, computed as the definition says.
__device__ __noinline__ CodeWord codes_slowly(const math::AffineSpec<float>& spec,
                                              const math::SegmentParameters<float>& parameters,
                                              uint4 v) {
  CodeWord word = 0;
#pragma unroll
  for (int i = 0; i < kPerVector<In>; ++i)
    word |= CodeWord{math::integer_code_of(math::widen(element(v, i)), spec, parameters)} << 8 * i;
  return word;
}

// Codes of a vector. Elements not below `least` need the slow path, unless their columns are
// listed.
__device__ __forceinline__ CodeWord codes_of(const Args& args, const RowNumbers& row,
                                             const uint4& v, std::uint32_t listed) {
  std::uint32_t unused = 0;
  bool fast = row.fast;
  if (add_magnitudes(v, args.rule.least, unused))
    fast = fast && (elements_from(v, args.rule.least) & ~listed) == 0;
  const CodeWord word = fast ? affine::encode_by_any_rule<In, cuda::Codes::Byte>(
                                   v, row.numbers, args.spec, NibbleOrder::LowFirst)
                             : codes_slowly(args.spec, row.parameters, v);
  return word & ~bytes_of(listed);
}

// Stores the elements of a vector whose columns are listed, from position `place` on.
__device__ __forceinline__ void keep(In* kept, int64_t place, const uint4& v,
                                     std::uint32_t listed) {
#pragma unroll 1
  for (; listed != 0; listed &= listed - 1) {
    In x{};
#pragma unroll
    for (int i = 0; i < kPerVector<In>; ++i)
      if (i == __ffs(listed) - 1) x = element(v, i);
    kept[place++] = kept_value(x, false);
  }
}

__device__ __forceinline__ void encode_vectors(const Args& args, const Listed& list,
                                               const Span& span, const RowNumbers& row,
                                               const uint4 (&v)[kBatch], int lane) {
  auto* output = reinterpret_cast<std::uint8_t*>(args.output + span.at.at[kRowOutput]);
  In* kept = args.outlier + span.at.at[kRowOutlier];
  constexpr int kBytes = kPerVector<In>;
  const int shift = cuda::misalignment<kBytes>(output + span.line.head);
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    const int64_t first = span.first + k * kWarp, column = span.column(first + lane);
    if (first >= span.line.vectors) break;
    const int last = static_cast<int>(min(span.line.vectors - 1 - first, int64_t{kWarp - 1}));
    const std::uint32_t listed = lane <= last ? list.from(column) : 0u;
    CodeWord word = 0;
    if (!row.parameters.poisoned) word = codes_of(args, row, v[k], listed);
    if (shift != 0)
      cuda::store_unaligned<kBytes>(output + column, word, shift, lane, last, kWarp);
    else if (lane <= last)
      cuda::store_word<kBytes>(output + column, word);
    if (listed != 0 && !row.parameters.poisoned) keep(kept, list.place_of(column), v[k], listed);
  }
}

// Writes what a row has once: its scale, the elements outside of its vectors, and 0 for positions
// of the list without a column.
__device__ __forceinline__ void encode_ends(const Args& args, const Listed& list, const Span& span,
                                            const RowNumbers& row, int lane) {
  In* kept = args.outlier + span.at.at[kRowOutlier];
  if (lane == 0)
    math::store_scale(args.scale, span.at.at[kRowScale], row.parameters.scale, DType::Float32);
  if (span.line.has_edge(lane)) {
    const In x = *span.line.edge(lane);
    const int64_t column = span.edge_column(lane);
    const bool listed = list.columns[column / kWordColumns] >> (column % kWordColumns) & 1u;
    const std::uint8_t code = math::integer_code_of(math::widen(x), args.spec, row.parameters);
    args.output[span.at.at[kRowOutput] + column] = static_cast<std::int8_t>(listed ? 0 : code);
    if (listed && !row.parameters.poisoned) kept[list.place_of(column)] = kept_value(x, false);
  }
  const int64_t held =
      row.parameters.poisoned ? 0 : outlier::kept_entries(list.count, args.capacity);
#pragma unroll 1
  for (int64_t j = held + lane; j < args.capacity; j += kWarp) kept[j] = In{};
}

// Spans are processed in reverse, because those that the first kernel read last are still in the
// cache. A warp loads its first span before that kernel has ended.
__global__ void __launch_bounds__(kThreads, kBlocks)
    encode_rows(const __grid_constant__ Args args) {
  const int lane = threadIdx.x % kWarp;
  int64_t unit = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  uint4 v[kBatch];
  if (unit < args.units) load_span<false>(Span(args, args.units - 1 - unit), lane, v);
  cuda::wait_for_previous();
  Listed list{args.room.listed, args.room.before, 0};
  if (args.lists_itself())
    list = list_in_block(args);
  else
    list.count = *args.count;
#pragma unroll 1
  while (unit < args.units) {
    const Span span(args, args.units - 1 - unit);
    const RowNumbers row(args, static_cast<Magnitude<In>>(args.room.largest[span.row]));
    encode_vectors(args, list, span, row, v, lane);
    if (span.leads) encode_ends(args, list, span, row, lane);
    unit += int64_t{gridDim.x} * kWarps;
    if (unit < args.units) load_span<false>(Span(args, args.units - 1 - unit), lane, v);
  }
}

// --- Launch --------------------------------------------------------------------------------------

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  return Room(descriptor.as<Fields>(), Scratch()).bytes;
}

Status prepare(const Descriptor&, const Device&, State&) {
  PLANQ_TRY(cuda::preload(clear_room));
  PLANQ_TRY(cuda::preload(measure_rows));
  return cuda::preload(encode_rows);
}

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const Room room(f, Scratch(call.workspace));
  const int64_t columns = f.shape.last(), rows = outlier::rows_of(f.shape);
  const int64_t spans =
      std::max<int64_t>(cuda::ceil_div(columns / kPerVector<In>, kSpanVectors), 1);
  const Args args = {static_cast<const In*>(operands[kInput].data),
                     static_cast<std::int8_t*>(operands[kOutput].data),
                     static_cast<float*>(operands[kScale].data),
                     static_cast<std::int32_t*>(operands[kIndex].data),
                     static_cast<int64_t*>(operands[kCount].data),
                     static_cast<In*>(operands[kOutlier].data),
                     row_space(f, operands),
                     cuda::LineDivider(spans, rows * spans),
                     rows * spans,
                     columns,
                     column_words(f.shape),
                     f.capacity,
                     room,
                     ElementRule<In>(f),
                     spec_of(f),
                     rows >= kManyRows};
  const auto grid_of = [](int64_t blocks, bool dependent) {
    cuda::Grid grid{std::clamp<int64_t>(blocks, 1, kMostBlocks), kThreads};
    grid.dependent = dependent;
    return grid;
  };
  const bool dependent = has_dependent_launches(call.device.arch);
  const auto vectors = static_cast<int64_t>(room.cleared / cuda::kVectorBytes);
  const int64_t blocks = cuda::ceil_div(args.units, kWarps);
  const int64_t slots = int64_t{call.device.multiprocessors} * kBlocks;
  PLANQ_TRY(cuda::launch(
      clear_room, grid_of(std::min(cuda::ceil_div(vectors, kThreads), slots), false), args, bound));
  PLANQ_TRY(cuda::launch(measure_rows, grid_of(blocks, dependent), args, bound));
  return cuda::launch(encode_rows, grid_of(cuda::even_blocks(blocks, slots), dependent), args,
                      bound);
}

constexpr Kernel kKernels[] = {{.op = "llm_int8_quantize",
                                .body = "rows",
                                .dtypes = kDTypes<cuda::kElement, DType::Int8>,
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {80},
                                .rank = 0,
                                .guarantee = kGuarantee,
                                .rejects = rejects<cuda::kElement>,
                                .workspace = workspace,
                                .prepare = prepare,
                                .bind = bind}};

}  // namespace
}  // namespace planq::llm_int8_quantize
