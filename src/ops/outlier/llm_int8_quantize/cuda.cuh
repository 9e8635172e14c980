// llm_int8_quantize on CUDA: two kernels, each of which reads the input once. The first finds every
// row's largest magnitude and marks columns, by atomic operations on integers, whose order changes
// nothing; its last block lists the columns. The second writes codes and what is kept.
//
// A warp takes a span of a row: its 16-byte vectors, wherever the row begins; the first span has
// the elements beside them too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/scratch.h"
#include "core/sku.h"
#include "cuda/element.cuh"
#include "cuda/launch.cuh"
#include "cuda/lines.cuh"
#include "ops/affine/encode.cuh"
#include "ops/outlier/llm_int8_quantize/desc.h"

namespace planq::llm_int8_quantize {
namespace {

using cuda::kAllLanes;
using cuda::kPerVector;
using cuda::kWarp;
using In = cuda::Element;
using Line = cuda::AlignedLine<In>;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
// Vectors that a lane has in flight, and those of a span.
constexpr int kBatch = 4, kSpanVectors = kBatch * kWarp;
constexpr int64_t kMostBlocks = int64_t{1} << 30;

// The first three are cleared before the first kernel.
struct Room {
  std::uint32_t* largest;  // of each row
  std::uint32_t* columns;  // a bit each: it has an outlier
  std::uint32_t* arrived;  // blocks of the first kernel that are done
  std::uint32_t* listed;   // a bit for each column that is in the list
  std::uint32_t* before;   // columns in the list before each word of them
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
  // Of the single element that this lane has, if any.
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

// Raises the largest magnitudes below `least` (of 16-bit elements two, in the halves of a word);
// whether there are others.
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

__device__ __forceinline__ void mark_word(std::uint32_t* word, std::uint32_t bits) {
  if (bits & ~__ldcg(word)) atomicOr(word, bits);
}
// Marks columns from `column` on: at most the elements of a vector, a bit each.
__device__ __forceinline__ void mark(const Args& args, int64_t column, std::uint32_t mask) {
  if (mask == 0) return;
  std::uint32_t* word = args.room.columns + column / kWordColumns;
  const int shift = static_cast<int>(column % kWordColumns);
  mark_word(word, mask << shift);
  if (shift > kWordColumns - kPerVector<In>) {
    const std::uint32_t beyond = mask >> (kWordColumns - shift);
    if (beyond != 0) mark_word(word + 1, beyond);
  }
}

// Of an element that is not below `least`.
__device__ __forceinline__ std::uint32_t judge(const ElementRule<In>& rule, In x,
                                               std::uint32_t& largest) {
  const Magnitude<In> own = outlier::magnitude_of(x);
  if (rule.gives_up(own)) largest = max(largest, std::uint32_t{own});
  return rule.is_outlier(own) ? 1u : 0u;
}

__device__ __forceinline__ void measure_span(const Args& args, const Span& span, int lane) {
  uint4 v[kBatch];
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    const int64_t vector = span.first + k * kWarp + lane;
    v[k] = make_uint4(0, 0, 0, 0);
    if (vector < span.line.vectors)
      v[k] = cuda::load_kept(span.line.input + vector * kPerVector<In>);
  }
  std::uint32_t packed = 0, largest = 0;
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    if (!add_magnitudes(v[k], args.rule.least, packed)) continue;
    std::uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < kPerVector<In>; ++i)
      mask |= judge(args.rule, element(v[k], i), largest) << i;
    mark(args, span.column(span.first + k * kWarp + lane), mask);
  }
  if (sizeof(In) == 2) packed = max(packed & 0xFFFFu, packed >> 16);
  largest = max(largest, packed);
  if (span.leads && span.line.has_edge(lane)) {
    const In x = *span.line.edge(lane);
    const Magnitude<In> own = outlier::magnitude_of(x);
    if (own < args.rule.least) largest = max(largest, std::uint32_t{own});
    mark(args, span.edge_column(lane), judge(args.rule, x, largest));
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  if (lane == 0 && largest > 0) atomicMax(args.room.largest + span.row, largest);
}

// Whether all other blocks are done, and what they wrote can be seen.
__device__ __forceinline__ bool arrives_last(std::uint32_t* arrived) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(arrived, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// The sum of the numbers of the threads before this one; `all`: of all threads.
__device__ __forceinline__ std::uint32_t sum_before(std::uint32_t number, std::uint32_t& all) {
  __shared__ std::uint32_t sums[kWarps];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  std::uint32_t sum = number;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const std::uint32_t other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += other;
  }
  __syncthreads();  // the last call's sums have been read
  if (lane == kWarp - 1) sums[warp] = sum;
  __syncthreads();
  std::uint32_t earlier = 0;
  all = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) earlier += sums[i];
    all += sums[i];
  }
  return earlier + sum - number;
}

// The first columns of one word into the list, from place `at` on; which of them had room.
__device__ __forceinline__ std::uint32_t list_word(const Args& args, int64_t word,
                                                   std::uint32_t bits, std::uint32_t at) {
  std::uint32_t kept = 0;
#pragma unroll 1
  for (; bits != 0 && at < args.capacity; bits &= bits - 1, ++at) {
    kept |= bits & (0u - bits);
    args.index[at] = static_cast<std::int32_t>(word * kWordColumns + (__ffs(bits) - 1));
  }
  return kept;
}

__device__ __forceinline__ void list_columns(const Args& args) {
  std::uint32_t count = 0;
#pragma unroll 1
  for (int64_t first = 0; first < args.words; first += kThreads) {
    const int64_t word = first + threadIdx.x;
    const std::uint32_t bits = word < args.words ? __ldcg(args.room.columns + word) : 0u;
    std::uint32_t all;
    const std::uint32_t at = count + sum_before(__popc(bits), all);
    count += all;
    if (word >= args.words) continue;
    args.room.listed[word] = list_word(args, word, bits, at);
    args.room.before[word] = at;
  }
  if (threadIdx.x == 0) *args.count = count;
#pragma unroll 1
  for (int64_t j = int64_t{count} + threadIdx.x; j < args.capacity; j += kThreads)
    args.index[j] = outlier::kNoIndex;
}

__global__ void __launch_bounds__(kThreads) measure_rows(const __grid_constant__ Args args) {
  cuda::let_dependents_start();
  const int lane = threadIdx.x % kWarp;
#pragma unroll 1
  for (int64_t unit = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; unit < args.units;
       unit += int64_t{gridDim.x} * kWarps)
    measure_span(args, Span(args, unit), lane);
  if (arrives_last(args.room.arrived)) list_columns(args);
}

// --- Codes ---------------------------------------------------------------------------------------

// What a row's elements need.
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

// Which of the columns from `column` on are listed, a bit for each element of a vector.
__device__ __forceinline__ std::uint32_t listed_from(const Args& args, int64_t column) {
  const std::uint32_t* word = args.room.listed + column / kWordColumns;
  const int shift = static_cast<int>(column % kWordColumns);
  std::uint32_t bits = word[0] >> shift;
  if (shift > kWordColumns - kPerVector<In>) bits |= word[1] << (kWordColumns - shift);
  return bits & ((1u << kPerVector<In>)-1);
}
// The place of a listed column in the list; of any, how many are before it.
__device__ __forceinline__ int64_t place_of(const Args& args, int64_t column) {
  const int64_t word = column / kWordColumns;
  const std::uint32_t below = (1u << (column % kWordColumns)) - 1;
  return int64_t{args.room.before[word]} + __popc(args.room.listed[word] & below);
}

// The bytes of the elements whose bits are set.
using CodeWord = cuda::Word<kPerVector<In>>;
__device__ __forceinline__ std::uint32_t bytes_of_four(std::uint32_t bits) {
  return ((bits & 0xFu) * 0x00204081u & 0x01010101u) * 0xFFu;
}
__device__ __forceinline__ CodeWord bytes_of(std::uint32_t bits) {
  const std::uint64_t upper = bytes_of_four(bits >> 4);
  return static_cast<CodeWord>(upper << 32 | bytes_of_four(bits));
}

// Codes of a vector, each by the definition.
__device__ __noinline__ CodeWord codes_slowly(const math::AffineSpec<float>& spec,
                                              const math::SegmentParameters<float>& parameters,
                                              uint4 v) {
  CodeWord word = 0;
#pragma unroll
  for (int i = 0; i < kPerVector<In>; ++i)
    word |= CodeWord{math::integer_code_of(math::widen(element(v, i)), spec, parameters)} << 8 * i;
  return word;
}

// What is not below `least` takes the slow way, unless its column is listed.
__device__ __forceinline__ CodeWord codes_of(const Args& args, const RowNumbers& row,
                                             const uint4& v, std::uint32_t listed) {
  std::uint32_t unused = 0;
  bool fast = row.fast;
  if (add_magnitudes(v, args.rule.least, unused)) {
#pragma unroll
    for (int i = 0; i < kPerVector<In>; ++i)
      fast = fast && (outlier::magnitude_of(element(v, i)) < args.rule.least || listed >> i & 1u);
  }
  const CodeWord word = fast ? affine::encode_by_any_rule<In, cuda::Codes::Byte>(
                                   v, row.numbers, args.spec, NibbleOrder::LowFirst)
                             : codes_slowly(args.spec, row.parameters, v);
  return word & ~bytes_of(listed);
}

__device__ __forceinline__ void encode_vectors(const Args& args, const Span& span,
                                               const RowNumbers& row, const uint4 (&v)[kBatch],
                                               int lane) {
  auto* output = reinterpret_cast<std::uint8_t*>(args.output + span.at.at[kRowOutput]);
  In* kept = args.outlier + span.at.at[kRowOutlier];
  constexpr int kBytes = kPerVector<In>;
  const int shift = cuda::misalignment<kBytes>(output + span.line.head);
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    const int64_t first = span.first + k * kWarp, column = span.column(first + lane);
    if (first >= span.line.vectors) break;
    const int last = static_cast<int>(min(span.line.vectors - 1 - first, int64_t{kWarp - 1}));
    const std::uint32_t listed = lane <= last ? listed_from(args, column) : 0u;
    CodeWord word = 0;
    if (!row.parameters.poisoned) word = codes_of(args, row, v[k], listed);
    cuda::store_unaligned<kBytes>(output + column, word, shift, lane, last, kWarp);
    if (listed == 0 || row.parameters.poisoned) continue;
    int64_t place = place_of(args, column);
#pragma unroll
    for (int i = 0; i < kPerVector<In>; ++i)
      if (listed >> i & 1u) kept[place++] = kept_value(element(v[k], i), false);
  }
}

// What a row has once: its scale, the elements beside its vectors, and what its list has no columns
// for.
__device__ __forceinline__ void encode_ends(const Args& args, const Span& span,
                                            const RowNumbers& row, int lane) {
  In* kept = args.outlier + span.at.at[kRowOutlier];
  if (lane == 0)
    math::store_scale(args.scale, span.at.at[kRowScale], row.parameters.scale, DType::Float32);
  if (span.line.has_edge(lane)) {
    const In x = *span.line.edge(lane);
    const int64_t column = span.edge_column(lane);
    const std::uint32_t word = args.room.listed[column / kWordColumns];
    const bool listed = word >> (column % kWordColumns) & 1u;
    const std::uint8_t code = math::integer_code_of(math::widen(x), args.spec, row.parameters);
    args.output[span.at.at[kRowOutput] + column] = static_cast<std::int8_t>(listed ? 0 : code);
    if (listed && !row.parameters.poisoned) kept[place_of(args, column)] = kept_value(x, false);
  }
  const int64_t held =
      row.parameters.poisoned ? 0 : outlier::kept_entries(*args.count, args.capacity);
#pragma unroll 1
  for (int64_t j = held + lane; j < args.capacity; j += kWarp) kept[j] = In{};
}

// Spans come in reverse, so that those that the first kernel read last are still in the cache.
__global__ void __launch_bounds__(kThreads) encode_rows(const __grid_constant__ Args args) {
  const int lane = threadIdx.x % kWarp;
  cuda::wait_for_previous();
#pragma unroll 1
  for (int64_t unit = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; unit < args.units;
       unit += int64_t{gridDim.x} * kWarps) {
    const Span span(args, args.units - 1 - unit);
    uint4 v[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t vector = span.first + k * kWarp + lane;
      v[k] = make_uint4(0, 0, 0, 0);
      if (vector < span.line.vectors)
        v[k] = cuda::load_once(span.line.input + vector * kPerVector<In>);
    }
    const RowNumbers row(args, static_cast<Magnitude<In>>(args.room.largest[span.row]));
    encode_vectors(args, span, row, v, lane);
    if (span.leads) encode_ends(args, span, row, lane);
  }
}

// --- Launch --------------------------------------------------------------------------------------

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  return Room(descriptor.as<Fields>(), Scratch()).bytes;
}

Status prepare(const Descriptor&, const Device&, State&) {
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
                     spec_of(f)};
  cuda::Grid grid;
  grid.threads = dim3(kThreads);
  grid.blocks = std::clamp<int64_t>(cuda::ceil_div(args.units, kWarps), 1, kMostBlocks);
  PLANQ_TRY(cuda::clear(room.largest, room.cleared, bound));
  PLANQ_TRY(cuda::launch(measure_rows, grid, args, bound));
  if (args.units == 0) return Status::success();
  grid.dependent = true;
  return cuda::launch(encode_rows, grid, args, bound);
}

constexpr Kernel kKernels[] = {{.op = "llm_int8_quantize",
                                .method = "rows",
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
