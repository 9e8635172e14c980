// Norms of rows on CUDA. A row is held in the registers of a team of threads, as vectors: those of
// a warp where rows are short and many, else those of a block. Rows that do not lie as vectors, or
// are longer, are read again for each pass by single elements. Either way a sum has the bits of
// math/tree_sum.h, since threads hold aligned parts of its list. The file that includes this names
// the type of the input: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/divider.cuh"
#include "cuda/element.cuh"
#include "cuda/held_columns.cuh"
#include "cuda/launch.cuh"
#include "cuda/neighbours.cuh"
#include "cuda/tree_sum.cuh"
#include "ops/affine/row_codes.cuh"
#include "ops/norm/arithmetic.h"
#include "ops/norm/norm.h"

namespace planq::norm {
namespace {

using cuda::Element;
using cuda::kWarp;
using std::int64_t;

// Neighbours that a thread holds: a vector of the input.
constexpr int kEach = cuda::kVectorBytes / static_cast<int>(sizeof(Element));
constexpr int kMostThreads = 1024, kMostWarps = kMostThreads / kWarp;
// Of a block that leaves room for others on its multiprocessor.
constexpr int kHalfThreads = 512;
// Of a block whose warps have a row each, and of one that reads single elements.
constexpr int kFewThreads = 256, kFewWarps = kFewThreads / kWarp;
// Vectors of a thread of a warp.
constexpr int kWarpPasses = 2;

struct RowTypes {
  DType weight, bias, residual, output;  // Unset: there is no such operand

  PLANQ_HD bool has_residual() const { return residual != DType::Unset; }
};

// Of a descriptor's fields, or of a Norm.
template <class Own>
RowTypes row_types(const Own& own) {
  RowTypes types = {own.weight_dtype, DType::Unset, own.residual_dtype, own.output_dtype};
  if constexpr (requires { own.bias_dtype; }) types.bias = own.bias_dtype;
  return types;
}

struct RowArgs {
  IndexSpaceOf<kElementOperands> layout;
  const Element* input;
  const void *weight, *bias;
  void *residual, *output;
  FloatScalar eps;
  int64_t rows;
  int length;
  math::Length divisor;
  float weight_offset;
  RowTypes types;
  bool round_before_weight;
};

// What a kernel knows of the types. Alike: all are the input's, there is a residual or none, and
// the rows lie along one axis. That leaves few rows less to wait for.
enum class Types { Any, Alike, AlikeWithResidual };
// Vectors of a thread where blocks have many rows, and the longest row that is held. More take
// fewer instructions for an element. Kernels of any types have no registers for them.
template <Types kTypes>
constexpr int kBlockPasses = kTypes == Types::Any && sizeof(Element) == 2 ? 2 : 4;
constexpr int kLongestHeld = kBlockPasses<Types::Any> * kEach * kMostThreads;

template <Types kTypes>
__device__ __forceinline__ RowTypes known_types(const RowArgs& args) {
  RowTypes types = args.types;
  if constexpr (kTypes != Types::Any) {
    types.weight = types.output = cuda::kElement;
    types.bias = types.bias == DType::Unset ? DType::Unset : cuda::kElement;
    types.residual = kTypes == Types::AlikeWithResidual ? cuda::kElement : DType::Unset;
  }
  return types;
}

// Where a row begins.
template <Types kTypes>
__device__ __forceinline__ OffsetsOf<kElementOperands> row_places(const RowArgs& args,
                                                                  int64_t row) {
  if constexpr (kTypes == Types::Any)
    return cuda::row_offsets(args.layout, row);
  else
    return cuda::offsets_of_axis(args.layout.axes[0], row);
}

// --- Sums ----------------------------------------------------------------------------------------

// The threads that have a row: a warp of a block of some, or a whole block, which may have as many
// as half of the largest.
enum class RowTeam { Warp, HalfBlock, Block };

// The sum over a team, for each of its threads. The warps of a block leave theirs in `shared`: each
// has the part behind that of the warp before it. Lanes beyond the last warp's add nothing, and of
// half a block both halves of a warp join the same.
template <RowTeam kTeam, int kPasses>
__device__ __forceinline__ float team_sum(float (&passes)[kPasses], float (&shared)[kMostWarps]) {
  const cuda::AddNeighbours join;
#pragma unroll
  for (int p = 0; p < kPasses; ++p) passes[p] = cuda::join_lanes(passes[p], join);
  const float own = cuda::join_neighbours(passes, join);
  if constexpr (kTeam == RowTeam::Warp) {
    return own;
  } else {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane == 0) shared[warp] = own;
    __syncthreads();
    const int warps = static_cast<int>(blockDim.x) / kWarp;
    constexpr int kLanes = (kTeam == RowTeam::HalfBlock ? kHalfThreads : kMostThreads) / kWarp;
    const int own_warp = lane % kLanes;
    return cuda::join_lanes<kLanes>(own_warp < warps ? shared[own_warp] : math::kNoTerm, join);
  }
}

// --- Rows that are held --------------------------------------------------------------------------

template <int kPasses>
using Columns = cuda::HeldColumns<kPasses, kEach>;

template <int kPasses>
using RawColumns = cuda::RawColumns<kPasses, kEach, sizeof(Element)>;

// Rounds a row to the type and stores it.
template <class T, int kPasses>
__device__ __forceinline__ void keep(const Columns<kPasses>& columns, T* to,
                                     float (&x)[kPasses][kEach]) {
#pragma unroll
  for (int p = 0; p < kPasses; ++p) {
    const auto rounded = cuda::packed<T>(x[p]);
    if (columns.has(p)) rounded.store(to + columns.at(p));
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[p][i] = rounded[i];
  }
}

// Whether weights are read beside a row, not when they are needed: that takes registers.
template <int kPasses>
constexpr bool kReadsEarly = kPasses == 1;

// The compiler loads weights when the row has come, wherever that is written. Then they are in L2
// or on their way there, since the kernel ahead still ran.
__device__ __forceinline__ void prefetch(const void* weights, DType type,
                                         const Columns<1>& columns) {
  const int size = type == DType::Float32 ? 4 : 2;
  if (columns.has(0)) cuda::prefetch(static_cast<const char*>(weights) + columns.at(0) * size);
}

// What a row is made of, on its way.
template <int kPasses>
struct RawRow {
  RawColumns<kPasses> input, residual;
  RawColumns<1> weight;

  __device__ __forceinline__ RawRow(const RowArgs& args, const RowTypes& types,
                                    const OffsetsOf<kElementOperands>& at,
                                    const Columns<kPasses>& columns) {
    input.load(args.input, at.at[kInputPlace], cuda::kElement, columns);
    if (types.has_residual())
      residual.load(args.residual, at.at[kResidualPlace], types.residual, columns);
    if constexpr (kReadsEarly<kPasses>) weight.load(args.weight, 0, types.weight, columns);
  }
};

// The row, with the residual added and stored.
template <int kPasses>
__device__ __forceinline__ void read_row(const RowArgs& args, const RowTypes& types,
                                         const OffsetsOf<kElementOperands>& at,
                                         const Columns<kPasses>& columns,
                                         const RawRow<kPasses>& raw, float (&x)[kPasses][kEach]) {
  raw.input.widen(args.input + at.at[kInputPlace], columns, x);
  if (!types.has_residual()) return;
  cuda::with_float(types.residual, [&](auto type) {
    auto* const residual = static_cast<decltype(type)*>(args.residual) + at.at[kResidualPlace];
    float other[kPasses][kEach];
    raw.residual.widen(residual, columns, other);
#pragma unroll
    for (int p = 0; p < kPasses; ++p)
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[p][i] = x[p][i] + other[p][i];
    keep(columns, residual, x);
  });
}

// What the columns of a pass are multiplied by.
template <int kPasses>
__device__ __forceinline__ void read_weights(const RowArgs& args, const RowTypes& types,
                                             const Columns<1>& columns, const RawColumns<1>& raw,
                                             float (&w)[1][kEach]) {
  cuda::with_float(types.weight, [&](auto type) {
    const auto* const from = static_cast<const decltype(type)*>(args.weight);
    if constexpr (kReadsEarly<kPasses>)
      raw.widen(from, columns, w);
    else
      cuda::read_columns(from, columns, w);
  });
#pragma unroll
  for (int i = 0; i < kEach; ++i) w[0][i] = w[0][i] + args.weight_offset;
}

// The sum of term(element) over a row, but for its filling.
template <RowTeam kTeam, int kPasses, class Term>
__device__ __forceinline__ float held_sum(const Columns<kPasses>& columns,
                                          const float (&x)[kPasses][kEach],
                                          float (&shared)[kMostWarps], const Term& term) {
  float passes[kPasses];
#pragma unroll
  for (int p = 0; p < kPasses; ++p) {
    float terms[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) terms[i] = term(x[p][i]);
    const float joined = cuda::join_neighbours(terms, cuda::AddNeighbours{});
    passes[p] = columns.has(p) ? joined : math::kNoTerm;
  }
  return team_sum<kTeam>(passes, shared);
}

// One pass of a row: distances from the mean, divided and multiplied by the weight.
template <bool kCentred, int kPasses>
__device__ __forceinline__ void scale_pass(const RowArgs& args, const RowTypes& types,
                                           const Columns<1>& columns, float mean, float factor,
                                           const RawColumns<1>& weight, float (&x)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] = math::normalized(x[i], mean, factor);
  if (!kCentred && args.round_before_weight) cuda::round_neighbours<Element>(x);
  float w[1][kEach];
  read_weights<kPasses>(args, types, columns, weight, w);
  if (kCentred && types.bias != DType::Unset) {
    float bias[1][kEach];
    cuda::with_float(types.bias, [&](auto type) {
      cuda::read_columns(static_cast<const decltype(type)*>(args.bias), columns, bias);
    });
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = __fmaf_rn(x[i], w[0][i], bias[0][i]);
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = x[i] * w[0][i];
  }
}

// --- What becomes of a row of results ------------------------------------------------------------

template <class End>
struct NormArgs : RowArgs {
  typename End::Args end;
};

// It is stored as floating numbers. Another end has the same functions: for a row that a team
// holds, and for one whose results own(column) a block makes by single elements.
struct StoreFloats {
  struct Args {};
  template <RowTeam kTeam, int kPasses>
  static __device__ __forceinline__ void finish(const NormArgs<StoreFloats>& args,
                                                const RowTypes& types, int64_t, int64_t offset,
                                                const Columns<kPasses>& columns,
                                                const float (&y)[kPasses][kEach]) {
    cuda::with_float(types.output, [&](auto type) {
      cuda::write_columns(y, columns, static_cast<decltype(type)*>(args.output) + offset);
    });
  }
  template <class Own>
  static __device__ __forceinline__ void finish_scattered(const NormArgs<StoreFloats>& args,
                                                          int64_t, int64_t offset, const Own& own) {
    cuda::with_float(args.types.output, [&](auto type) {
      using T = decltype(type);
      T* const output = static_cast<T*>(args.output) + offset;
#pragma unroll 4
      for (int i = static_cast<int>(threadIdx.x); i < args.length; i += kFewThreads)
        output[i] = math::narrowed<T>(own(i));
    });
  }
};

// It is rounded to the input's type, and becomes codes.
template <affine::RowKind kKind>
struct StoreCodes {
  using Args = affine::RowCodes<Element>;
  template <RowTeam kTeam, int kPasses>
  static __device__ __forceinline__ void finish(const NormArgs<StoreCodes>& args, const RowTypes&,
                                                int64_t row, int64_t,
                                                const Columns<kPasses>& columns,
                                                const float (&y)[kPasses][kEach]) {
    uint4 vectors[kPasses];
#pragma unroll
    for (int p = 0; p < kPasses; ++p) vectors[p] = cuda::packed<Element>(y[p]).vector(0);
    const int lanes = kTeam == RowTeam::Warp ? kWarp : static_cast<int>(blockDim.x);
    affine::store_held_row<kKind>(args.end, row, affine::RowTeam{lanes, 1}, columns, vectors);
  }
  template <class Own>
  static __device__ __forceinline__ void finish_scattered(const NormArgs<StoreCodes>& args,
                                                          int64_t row, int64_t, const Own& own) {
    affine::store_scattered_row(args.end, row,
                                [&](int i) { return math::narrowed<Element>(own(i)); });
  }
};
using StoreAnyCodes = StoreCodes<affine::RowKind::Any>;

template <bool kCentred, int kPasses, int kThreads, Types kTypes, class End>
__global__ void __launch_bounds__(kThreads, kMostThreads / kThreads)
    normalize_held(const __grid_constant__ NormArgs<End> args) {
  __shared__ float shared[2][kMostWarps];
  constexpr RowTeam kTeam = kThreads == kFewThreads    ? RowTeam::Warp
                            : kThreads == kHalfThreads ? RowTeam::HalfBlock
                                                       : RowTeam::Block;
  constexpr bool kIsWarp = kTeam == RowTeam::Warp;
  const int thread = static_cast<int>(threadIdx.x);
  const auto columns =
      cuda::held_columns<kPasses, kEach>(kIsWarp ? thread % kWarp : thread, args.length);
  const int teams = kIsWarp ? static_cast<int>(blockDim.x) / kWarp : 1;
  const int team = kIsWarp ? thread / kWarp : 0;
  const RowTypes types = known_types<kTypes>(args);
  if constexpr (kReadsEarly<kPasses>) {
    prefetch(args.weight, types.weight, columns);
    if (types.bias != DType::Unset) prefetch(args.bias, types.bias, columns);
  }
  cuda::follow_previous();
#pragma unroll 1
  for (int64_t row = int64_t{blockIdx.x} * teams + team; row < args.rows;
       row += int64_t{gridDim.x} * teams) {
    const auto at = row_places<kTypes>(args, row);
    float x[kPasses][kEach], mean = 0;
    const RawRow<kPasses> raw(args, types, at, columns);
    read_row(args, types, at, columns, raw, x);
    const float eps = args.eps.get();
    if constexpr (kCentred) {
      const float sum = held_sum<kTeam>(columns, x, shared[0], [](float own) { return own; });
      mean = args.divisor.mean(math::filled_sum(sum, args.length));
    }
    const float squares = held_sum<kTeam>(
        columns, x, shared[1], [&](float own) { return math::squared_distance(own, mean); });
    const float factor = math::norm_factor(squares, args.divisor, eps);
#pragma unroll
    for (int p = 0; p < kPasses; ++p)
      scale_pass<kCentred, kPasses>(args, types, columns.pass(p), mean, factor, raw.weight, x[p]);
    End::template finish<kTeam>(args, types, row, at.at[kOutputPlace], columns, x);
    if constexpr (!kIsWarp) __syncthreads();  // the sums have been read
  }
}

// --- Rows anywhere -------------------------------------------------------------------------------

// A warp sums 32 neighbours at a time.
constexpr int kMostRuns = static_cast<int>(kMaxLength) / kWarp;

__device__ __forceinline__ float element_of(const void* from, DType type, int64_t place) {
  float element = 0;
  cuda::with_float(type, [&](auto own) {
    element = math::widened(static_cast<const decltype(own)*>(from)[place]);
  });
  return element;
}

// A row by the elements of one thread: those whose columns are its number plus multiples of the
// block's threads. So what it has stored it reads again without a barrier.
struct ScatteredRow {
  const RowArgs& args;
  const OffsetsOf<kElementOperands> at;

  __device__ __forceinline__ float operator()(int column) const {
    if (args.types.has_residual())
      return element_of(args.residual, args.types.residual, at.at[kResidualPlace] + column);
    return math::widened(args.input[at.at[kInputPlace] + column]);
  }
  __device__ __forceinline__ void add_residual() const {
    cuda::with_float(args.types.residual, [&](auto type) {
      using T = decltype(type);
      const Element* const input = args.input + at.at[kInputPlace];
      T* const residual = static_cast<T*>(args.residual) + at.at[kResidualPlace];
#pragma unroll 4
      for (int i = static_cast<int>(threadIdx.x); i < args.length; i += kFewThreads)
        residual[i] = math::narrowed<T>(math::widened(input[i]) + math::widened(residual[i]));
    });
  }
  // The sum of term(element), but for its filling.
  template <class Term>
  __device__ __forceinline__ float sum(float (&runs)[kMostRuns], float (&warps)[kMostWarps],
                                       const Term& term) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int count = (args.length + kWarp - 1) / kWarp;
#pragma unroll 4
    for (int run = static_cast<int>(threadIdx.x) / kWarp; run < count; run += kFewWarps) {
      const int column = run * kWarp + lane;
      const float own = column < args.length ? term((*this)(column)) : math::kNoTerm;
      const float joined = cuda::join_lanes(own, cuda::AddNeighbours{});
      if (lane == 0) runs[run] = joined;
    }
    __syncthreads();
    constexpr int kOwn = kMostRuns / kFewThreads;
    float own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int run = static_cast<int>(threadIdx.x) * kOwn + i;
      own[i] = run < count ? runs[run] : math::kNoTerm;
    }
    float part[1] = {cuda::join_neighbours(own, cuda::AddNeighbours{})};
    const float joined = team_sum<RowTeam::Block>(part, warps);
    __syncthreads();  // the runs and the warps' sums have been read
    return joined;
  }
  __device__ __forceinline__ float result(int column, float mean, float factor) const {
    float t = math::normalized((*this)(column), mean, factor);
    if (args.round_before_weight) t = math::rounded_to<Element>(t);
    const float w = element_of(args.weight, args.types.weight, column) + args.weight_offset;
    if (args.types.bias == DType::Unset) return t * w;
    return __fmaf_rn(t, w, element_of(args.bias, args.types.bias, column));
  }
};

template <bool kCentred, class End>
__global__ void __launch_bounds__(kFewThreads)
    normalize_scattered(const __grid_constant__ NormArgs<End> args) {
  __shared__ float runs[kMostRuns], warps[kMostWarps];
  cuda::follow_previous();
#pragma unroll 1
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const ScatteredRow own = {args, cuda::row_offsets(args.layout, row)};
    if (args.types.has_residual()) own.add_residual();
    float mean = 0;
    if constexpr (kCentred) {
      const float sum = own.sum(runs, warps, [](float x) { return x; });
      mean = args.divisor.mean(math::filled_sum(sum, args.length));
    }
    const float squares =
        own.sum(runs, warps, [&](float x) { return math::squared_distance(x, mean); });
    const float factor = math::norm_factor(squares, args.divisor, args.eps.get());
    End::finish_scattered(args, row, own.at.at[kOutputPlace],
                          [&](int column) { return own.result(column, mean, factor); });
  }
}

// --- From a call to a launch ---------------------------------------------------------------------

template <class End>
using NormKernel = void (*)(NormArgs<End>);

template <bool kCentred, class End, int kPasses, int kThreads, Types kTypes = Types::Any>
constexpr NormKernel<End> kHeld = normalize_held<kCentred, kPasses, kThreads, kTypes, End>;

// Of ends that are for some codes there are kernels of blocks alone. Those for any codes are long
// whatever they know.
template <class End>
constexpr bool kForAll = std::is_same_v<End, StoreFloats> || std::is_same_v<End, StoreAnyCodes>;
template <class End>
constexpr bool kKnowsTypes = !std::is_same_v<End, StoreAnyCodes>;

template <bool kCentred, class End, Types kTypes>
Status preload_blocks() {
  for (const NormKernel<End> kernel :
       {kHeld<kCentred, End, 1, kHalfThreads, kTypes>,
        kHeld<kCentred, End, kBlockPasses<kTypes>, kHalfThreads, kTypes>,
        kHeld<kCentred, End, 1, kMostThreads, kTypes>,
        kHeld<kCentred, End, kBlockPasses<kTypes>, kMostThreads, kTypes>})
    PLANQ_TRY(cuda::preload(kernel));
  return Status::success();
}

// What a kernel may know of rows along one axis. Codes are of no type here.
template <class End>
Types known_of(const RowTypes& types) {
  const auto is_own = [](DType type) { return type == DType::Unset || type == cuda::kElement; };
  const bool alike = is_own(types.weight) && is_own(types.bias) && is_own(types.residual) &&
                     (!std::is_same_v<End, StoreFloats> || is_own(types.output));
  if (!kKnowsTypes<End> || !alike) return Types::Any;
  return types.has_residual() ? Types::AlikeWithResidual : Types::Alike;
}

template <bool kCentred, class End>
Status preload_norms(const RowTypes& types) {
  PLANQ_TRY((preload_blocks<kCentred, End, Types::Any>()));
  if constexpr (kKnowsTypes<End>) {
    const Types known = known_of<End>(types);
    if (known == Types::Alike) PLANQ_TRY((preload_blocks<kCentred, End, Types::Alike>()));
    if (known == Types::AlikeWithResidual)
      PLANQ_TRY((preload_blocks<kCentred, End, Types::AlikeWithResidual>()));
  }
  if constexpr (kForAll<End>) {
    PLANQ_TRY(cuda::preload(kHeld<kCentred, End, 1, kFewThreads>));
    PLANQ_TRY(cuda::preload(kHeld<kCentred, End, kWarpPasses, kFewThreads>));
    PLANQ_TRY(cuda::preload(normalize_scattered<kCentred, End>));
  }
  return Status::success();
}

// Which threads hold rows.
struct Team {
  Types types;
  int passes, lanes, teams;  // vectors of a thread, threads of a row, rows of a block
  bool dependent;            // has_dependent_launches()

  bool is_warp() const { return lanes == kWarp && passes <= kWarpPasses; }
};

template <class End>
Team team_of(const Norm& norm, const Device& device) {
  const Types types =
      cuda::is_one_axis(norm.layout.rows) ? known_of<End>(row_types(norm)) : Types::Any;
  const int64_t vectors = norm.length() / kEach, multiprocessors = device.multiprocessors;
  const bool few = norm.rows <= 2 * multiprocessors;
  const bool dependent = has_dependent_launches(device.arch);
  if (vectors <= kWarp || (!few && vectors <= kWarpPasses * kWarp)) {
    const int64_t wanted = norm.rows / (4 * std::max<int64_t>(multiprocessors, 1));
    return {types, vectors > kWarp ? kWarpPasses : 1, kWarp,
            static_cast<int>(std::clamp<int64_t>(wanted, 1, kFewWarps)), dependent};
  }
  // Few rows: as many threads as there are.
  const int several = types == Types::Any ? kBlockPasses<Types::Any> : kBlockPasses<Types::Alike>;
  const int passes = few && vectors <= kMostThreads ? 1 : several;
  const auto lanes = static_cast<int>(cuda::ceil_div(vectors, passes * kWarp)) * kWarp;
  return {types, passes, lanes, 1, dependent};
}

template <bool kCentred, class End, Types kTypes>
NormKernel<End> block_kernel(const Team& team) {
  const auto by_passes = [&](auto one, auto several) { return team.passes == 1 ? one : several; };
  if (team.lanes <= kHalfThreads)
    return by_passes(kHeld<kCentred, End, 1, kHalfThreads, kTypes>,
                     kHeld<kCentred, End, kBlockPasses<kTypes>, kHalfThreads, kTypes>);
  return by_passes(kHeld<kCentred, End, 1, kMostThreads, kTypes>,
                   kHeld<kCentred, End, kBlockPasses<kTypes>, kMostThreads, kTypes>);
}

template <bool kCentred, class End>
NormKernel<End> kernel_of(const Team& team) {
  if constexpr (kForAll<End>)
    if (team.is_warp())
      return team.passes == 1 ? kHeld<kCentred, End, 1, kFewThreads>
                              : kHeld<kCentred, End, kWarpPasses, kFewThreads>;
  if constexpr (kKnowsTypes<End>) {
    if (team.types == Types::Alike) return block_kernel<kCentred, End, Types::Alike>(team);
    if (team.types == Types::AlikeWithResidual)
      return block_kernel<kCentred, End, Types::AlikeWithResidual>(team);
  }
  return block_kernel<kCentred, End, Types::Any>(team);
}

// Whether threads can hold the rows, which then are whole vectors. Of codes the end says it.
bool is_held(const Norm& norm) {
  const int64_t length = norm.length();
  if (length % kEach != 0 || length > kLongestHeld) return false;
  const auto whole = [&](const OperandView* view, DType type) {
    if (!view) return true;
    const int size = type == DType::Float32 ? 4 : 2;
    return cuda::has_whole_words(*view, length * size, size,
                                 std::min(kEach * size, cuda::kVectorBytes));
  };
  return whole(norm.input, cuda::kElement) && whole(norm.weight, norm.weight_dtype) &&
         whole(norm.bias, norm.bias_dtype) && whole(norm.residual, norm.residual_dtype) &&
         (affine::is_code(norm.output_dtype) || whole(norm.output, norm.output_dtype));
}

RowArgs arguments_of(const Norm& norm) {
  const auto data = [](const OperandView* view) { return view ? view->data : nullptr; };
  return {.layout = norm.layout.rows,
          .input = static_cast<const Element*>(norm.input->data),
          .weight = norm.weight->data,
          .bias = data(norm.bias),
          .residual = data(norm.residual),
          .output = norm.output->data,
          .eps = norm.eps,
          .rows = norm.rows,
          .length = static_cast<int>(norm.length()),
          .divisor = math::Length(norm.length()),
          .weight_offset = norm.weight_offset,
          .types = row_types(norm),
          .round_before_weight = norm.round_before_weight};
}

template <bool kCentred, class End>
Status launch_held(const Norm& norm, const Team& team, const typename End::Args& end,
                   Bound& bound) {
  const cuda::Grid grid = {
      .blocks = std::min(cuda::ceil_div(norm.rows, team.teams), cuda::kMaxIndex),
      .threads = dim3(static_cast<unsigned>(team.lanes * team.teams)),
      .dependent = team.dependent};
  return cuda::launch(kernel_of<kCentred, End>(team), grid, NormArgs<End>{arguments_of(norm), end},
                      bound);
}

template <bool kCentred, class End>
Status launch_norm(const Norm& norm, bool held, const typename End::Args& end, const Device& device,
                   Bound& bound) {
  if (norm.rows == 0) return Status::success();
  if (held) return launch_held<kCentred, End>(norm, team_of<End>(norm, device), end, bound);
  const cuda::Grid grid = {.blocks = std::min(norm.rows, cuda::kMaxIndex),
                           .threads = dim3(kFewThreads),
                           .dependent = has_dependent_launches(device.arch)};
  return cuda::launch(normalize_scattered<kCentred, End>, grid,
                      NormArgs<End>{arguments_of(norm), end}, bound);
}

// With codes, by kernels of their own for some of them.
template <bool kCentred>
Status launch_codes(const Norm& norm, const affine::RowCodesOf<Element>& codes,
                    const Device& device, Bound& bound) {
  using enum affine::RowKind;
  const bool held = is_held(norm) && codes.held;
  const auto of_any = [&] {
    return launch_norm<kCentred, StoreAnyCodes>(norm, held, codes.args, device, bound);
  };
  if constexpr (kCentred) {
    return of_any();
  } else {
    const bool known = held && norm.rows > 0;
    return affine::by_kind<Element>(known ? kind_of(codes.args) : Any, [&](auto kind) {
      using End = StoreCodes<kind>;
      if constexpr (kForAll<End>) {
        return of_any();
      } else {
        const Team team = team_of<End>(norm, device);
        return team.is_warp() ? of_any()
                              : launch_held<kCentred, End>(norm, team, codes.args, bound);
      }
    });
  }
}

// --- Kernels of the registry ---------------------------------------------------------------------

// Of an operator with these fields; kNormOf makes a Norm of a call.
template <class Fields, Norm (*kNormOf)(const Call&), bool kCentred>
struct FloatKernels {
  static Status prepare(const Descriptor& descriptor, const Device&, State&) {
    return preload_norms<kCentred, StoreFloats>(row_types(descriptor.as<Fields>()));
  }
  static Status bind(const Call& call, Bound& bound) {
    const Norm norm = kNormOf(call);
    return launch_norm<kCentred, StoreFloats>(norm, is_held(norm), {}, call.device, bound);
  }
  static constexpr auto kernels(std::string_view op) {
    return kernels_of_outputs([&](auto output) -> Kernel {
      return {.op = op,
              .body = "rows",
              .dtypes = kDTypes<cuda::kElement, output.value>,
              .revision = 1,
              .backend = Backend::Cuda,
              .arch = {80, kLastArch},
              .rank = 0,
              .guarantee = kGuarantee,
              .rejects = rejects<Fields, cuda::kElement, output.value>,
              .workspace = no_workspace,
              .prepare = prepare,
              .bind = bind};
    });
  }
};

// The same with codes, which follow the output that is at kOutput.
template <class Fields, Norm (*kNormOf)(const Call&), bool kCentred, int kOutput>
struct CodeKernels {
  static Reason rejects(const Descriptor& descriptor, const Device&) {
    const auto& f = descriptor.as<Fields>();
    const Reason reason = expect(ReasonKind::DType, "input_dtype", cuda::kElement, f.input_dtype);
    if (!reason.accepted()) return reason;
    return affine::rejects_row_codes<cuda::kElement>(f.shape, f.output_dtype, f.quantized);
  }
  static Status prepare(const Descriptor& descriptor, const Device&, State&) {
    const RowTypes types = row_types(descriptor.as<Fields>());
    if constexpr (!kCentred) {
      using enum affine::RowKind;
      for (const affine::RowKind each : {Int8, E4M3, E4M3Groups, Int8Groups})
        PLANQ_TRY(affine::by_kind<Element>(
            each, [&](auto kind) { return preload_norms<kCentred, StoreCodes<kind>>(types); }));
    }
    return preload_norms<kCentred, StoreAnyCodes>(types);
  }
  static Status bind(const Call& call, Bound& bound) {
    const auto& f = call.fields<Fields>();
    const Norm norm = kNormOf(call);
    const affine::CodeOperands operands(call.operands, kOutput);
    const affine::RowCodesOf<Element> codes(f.shape, f.output_dtype, f.quantized, operands);
    return launch_codes<kCentred>(norm, codes, call.device, bound);
  }
  static constexpr auto kernels(std::string_view op) {
    return std::array{affine::quantized_kernel<cuda::kElement, Backend::Cuda>(op, "rows", rejects,
                                                                              prepare, bind)};
  }
};

template <class Fields, Norm (*kNormOf)(const Call&), bool kCentred, int kOutput>
constexpr auto kernels_of(std::string_view op) {
  return joined(FloatKernels<Fields, kNormOf, kCentred>::kernels(op),
                CodeKernels<Fields, kNormOf, kCentred, kOutput>::kernels(op),
                affine::quantized_parts<Fields, Backend::Cuda, cuda::kElement>(op));
}

}  // namespace
}  // namespace planq::norm
