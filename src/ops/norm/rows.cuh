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
// Elements that a thread of a block holds at most, and the longest row that is held.
constexpr int kMostHeld = 16, kLongestHeld = kMostHeld * kMostThreads;
constexpr int kBlockPasses = kMostHeld / kEach, kWarpPasses = 2;

struct RowArgs {
  IndexSpaceOf<kElementOperands> layout;
  const Element* input;
  const void *weight, *bias;  // bias null: there is none
  void *residual, *output;    // residual null: there is none
  RealScalar eps;
  int64_t rows;
  int length, lanes;  // of a row: elements, and threads that hold them
  float weight_offset;
  DType weight_dtype, bias_dtype, residual_dtype, output_dtype;
  bool round_before_weight;
};

// --- Sums ----------------------------------------------------------------------------------------

// The sum over a team of `lanes` threads, for each of them: a warp, or a whole block, whose warps
// leave theirs in `shared`. A warp has the part behind that of the warp before it.
template <int kPasses>
__device__ __forceinline__ float team_sum(float (&passes)[kPasses], int lanes,
                                          float (&shared)[kMostWarps]) {
  const cuda::AddNeighbours join;
#pragma unroll
  for (int p = 0; p < kPasses; ++p) passes[p] = cuda::join_lanes(passes[p], join);
  const float own = cuda::join_neighbours(passes, join);
  if (lanes == kWarp) return own;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (lane == 0) shared[warp] = own;
  __syncthreads();
  return cuda::join_lanes(lane < lanes / kWarp ? shared[lane] : math::kNoTerm, join);
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
    const auto rounded = cuda::narrow_neighbours<T>(x[p]);
    if (columns.has(p)) rounded.store(to + columns.at(p));
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[p][i] = math::widened(rounded.each[i]);
  }
}

// Whether what a row meets is read beside it, not when it is needed: that takes registers.
template <int kPasses>
constexpr bool kReadsEarly = kPasses == 1;

// What a row is made of, on its way.
struct RawRow {
  RawColumns<1> input, residual, weight;

  __device__ __forceinline__ RawRow(const RowArgs& args, const OffsetsOf<kElementOperands>& at,
                                    const Columns<1>& columns) {
    input.load(args.input, at.at[kInputPlace], cuda::kElement, columns);
    if (args.residual)
      residual.load(args.residual, at.at[kResidualPlace], args.residual_dtype, columns);
    weight.load(args.weight, 0, args.weight_dtype, columns);
  }
};

// The row, with the residual added and stored, and the weights if they are read early.
template <int kPasses>
__device__ __forceinline__ void read_row(const RowArgs& args, const OffsetsOf<kElementOperands>& at,
                                         const Columns<kPasses>& columns, RawColumns<1>& weight,
                                         float (&x)[kPasses][kEach]) {
  const auto with_residual = [&](const auto& read) {
    if (!args.residual) return;
    cuda::with_float(args.residual_dtype, [&](auto type) {
      auto* const residual = static_cast<decltype(type)*>(args.residual) + at.at[kResidualPlace];
      float other[kPasses][kEach];
      read(residual, other);
#pragma unroll
      for (int p = 0; p < kPasses; ++p)
#pragma unroll
        for (int i = 0; i < kEach; ++i) x[p][i] = x[p][i] + other[p][i];
      keep(columns, residual, x);
    });
  };
  if constexpr (kReadsEarly<kPasses>) {
    const RawRow raw(args, at, columns);
    weight = raw.weight;
    raw.input.widen(args.input + at.at[kInputPlace], columns, x);
    with_residual([&](const auto* from, auto& to) { raw.residual.widen(from, columns, to); });
  } else {
    cuda::read_columns(args.input + at.at[kInputPlace], columns, x);
    with_residual([&](const auto* from, auto& to) { cuda::read_columns(from, columns, to); });
  }
}

// What the columns of a pass are multiplied by.
template <int kPasses>
__device__ __forceinline__ void read_weights(const RowArgs& args, const Columns<1>& columns,
                                             const RawColumns<1>& raw, float (&w)[1][kEach]) {
  cuda::with_float(args.weight_dtype, [&](auto type) {
    const auto* const from = static_cast<const decltype(type)*>(args.weight);
    if constexpr (kReadsEarly<kPasses>)
      raw.widen(from, columns, w);
    else
      cuda::read_columns(from, columns, w);
  });
#pragma unroll
  for (int i = 0; i < kEach; ++i) w[0][i] = w[0][i] + args.weight_offset;
}

// The sum of term(element) over a row.
template <int kPasses, class Term>
__device__ __forceinline__ float held_sum(const RowArgs& args, const Columns<kPasses>& columns,
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
  return math::filled_sum(team_sum(passes, args.lanes, shared), args.length);
}

// One pass of a row: distances from the mean, divided and multiplied by the weight.
template <bool kCentred, int kPasses>
__device__ __forceinline__ void scale_pass(const RowArgs& args, const Columns<1>& columns,
                                           float mean, float factor, const RawColumns<1>& weight,
                                           float (&x)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] = math::normalized(x[i], mean, factor);
  if (!kCentred && args.round_before_weight) cuda::round_neighbours<Element>(x);
  float w[1][kEach];
  read_weights<kPasses>(args, columns, weight, w);
  if (kCentred && args.bias) {
    float bias[1][kEach];
    cuda::with_float(args.bias_dtype, [&](auto type) {
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
  template <int kPasses>
  static __device__ __forceinline__ void finish(const NormArgs<StoreFloats>& args, int64_t,
                                                int64_t offset, const Columns<kPasses>& columns,
                                                const float (&y)[kPasses][kEach]) {
    cuda::with_float(args.output_dtype, [&](auto type) {
      cuda::write_columns(y, columns, static_cast<decltype(type)*>(args.output) + offset);
    });
  }
  template <class Own>
  static __device__ __forceinline__ void finish_scattered(const NormArgs<StoreFloats>& args,
                                                          int64_t, int64_t offset, const Own& own) {
    cuda::with_float(args.output_dtype, [&](auto type) {
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
  template <int kPasses>
  static __device__ __forceinline__ void finish(const NormArgs<StoreCodes>& args, int64_t row,
                                                int64_t, const Columns<kPasses>& columns,
                                                const float (&y)[kPasses][kEach]) {
    uint4 vectors[kPasses];
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
      const auto rounded = cuda::narrow_neighbours<Element>(y[p]);
      memcpy(&vectors[p], rounded.each, sizeof vectors[p]);
    }
    affine::store_held_row<kKind>(args.end, row, affine::RowTeam{args.lanes, 1}, columns, vectors);
  }
  template <class Own>
  static __device__ __forceinline__ void finish_scattered(const NormArgs<StoreCodes>& args,
                                                          int64_t row, int64_t, const Own& own) {
    affine::store_scattered_row(args.end, row,
                                [&](int i) { return math::narrowed<Element>(own(i)); });
  }
};
using StoreAnyCodes = StoreCodes<affine::RowKind::Any>;

// Blocks of half the threads or fewer that have room on a multiprocessor, at least: registers that
// the compiler may use go with it. One pass is for few rows.
template <bool kCentred, int kPasses, class End>
constexpr int kBlocks = kCentred || kPasses == 1 || std::is_same_v<End, StoreAnyCodes> ? 2 : 3;

template <bool kCentred, int kPasses, int kThreads, class End>
__global__ void __launch_bounds__(kThreads,
                                  kThreads == kMostThreads ? 1 : kBlocks<kCentred, kPasses, End>)
    normalize_held(const __grid_constant__ NormArgs<End> args) {
  __shared__ float shared[2][kMostWarps];
  const auto columns = cuda::held_columns<kPasses, kEach>(args.lanes, args.length);
  const int teams = static_cast<int>(blockDim.x) / args.lanes;
  const int team = static_cast<int>(threadIdx.x) / args.lanes;
#pragma unroll 1
  for (int64_t row = int64_t{blockIdx.x} * teams + team; row < args.rows;
       row += int64_t{gridDim.x} * teams) {
    const auto at = args.layout.offsets(row);
    float x[kPasses][kEach], mean = 0;
    RawColumns<1> weight;
    read_row(args, at, columns, weight, x);
    const auto eps = static_cast<float>(args.eps.get());
    if constexpr (kCentred)
      mean = held_sum(args, columns, x, shared[0], [](float own) { return own; }) /
             static_cast<float>(args.length);
    const float squares = held_sum(args, columns, x, shared[1],
                                   [&](float own) { return math::squared_distance(own, mean); });
    const float factor = math::norm_factor(squares, args.length, eps);
#pragma unroll
    for (int p = 0; p < kPasses; ++p)
      scale_pass<kCentred, kPasses>(args, columns.pass(p), mean, factor, weight, x[p]);
    End::finish(args, row, at.at[kOutputPlace], columns, x);
    if (args.lanes > kWarp) __syncthreads();  // the sums have been read
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
    if (args.residual)
      return element_of(args.residual, args.residual_dtype, at.at[kResidualPlace] + column);
    return math::widened(args.input[at.at[kInputPlace] + column]);
  }
  __device__ __forceinline__ void add_residual() const {
    cuda::with_float(args.residual_dtype, [&](auto type) {
      using T = decltype(type);
      const Element* const input = args.input + at.at[kInputPlace];
      T* const residual = static_cast<T*>(args.residual) + at.at[kResidualPlace];
#pragma unroll 4
      for (int i = static_cast<int>(threadIdx.x); i < args.length; i += kFewThreads)
        residual[i] = math::narrowed<T>(math::widened(input[i]) + math::widened(residual[i]));
    });
  }
  // The sum of term(element).
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
    const float joined = team_sum(part, kFewThreads, warps);
    __syncthreads();  // the runs and the warps' sums have been read
    return math::filled_sum(joined, args.length);
  }
  __device__ __forceinline__ float result(int column, float mean, float factor) const {
    float t = math::normalized((*this)(column), mean, factor);
    if (args.round_before_weight) t = math::rounded_to<Element>(t);
    const float w = element_of(args.weight, args.weight_dtype, column) + args.weight_offset;
    if (!args.bias) return t * w;
    return __fmaf_rn(t, w, element_of(args.bias, args.bias_dtype, column));
  }
};

template <bool kCentred, class End>
__global__ void __launch_bounds__(kFewThreads)
    normalize_scattered(const __grid_constant__ NormArgs<End> args) {
  __shared__ float runs[kMostRuns], warps[kMostWarps];
#pragma unroll 1
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const ScatteredRow own = {args, args.layout.offsets(row)};
    if (args.residual) own.add_residual();
    float mean = 0;
    if constexpr (kCentred)
      mean = own.sum(runs, warps, [](float x) { return x; }) / static_cast<float>(args.length);
    const float squares =
        own.sum(runs, warps, [&](float x) { return math::squared_distance(x, mean); });
    const float factor =
        math::norm_factor(squares, args.length, static_cast<float>(args.eps.get()));
    End::finish_scattered(args, row, own.at.at[kOutputPlace],
                          [&](int column) { return own.result(column, mean, factor); });
  }
}

// --- From a call to a launch ---------------------------------------------------------------------

template <class End>
using NormKernel = void (*)(NormArgs<End>);

template <bool kCentred, class End, int kPasses, int kThreads>
constexpr NormKernel<End> kHeld = normalize_held<kCentred, kPasses, kThreads, End>;

// Of ends that are for some codes there are kernels of blocks alone.
template <class End>
constexpr bool kForAll = std::is_same_v<End, StoreFloats> || std::is_same_v<End, StoreAnyCodes>;

template <bool kCentred, class End>
Status preload_norms() {
  for (const NormKernel<End> kernel :
       {kHeld<kCentred, End, 1, kHalfThreads>, kHeld<kCentred, End, kBlockPasses, kHalfThreads>,
        kHeld<kCentred, End, 1, kMostThreads>, kHeld<kCentred, End, kBlockPasses, kMostThreads>})
    PLANQ_TRY(cuda::preload(kernel));
  if constexpr (kForAll<End>) {
    PLANQ_TRY(cuda::preload(kHeld<kCentred, End, 1, kFewThreads>));
    PLANQ_TRY(cuda::preload(kHeld<kCentred, End, kWarpPasses, kFewThreads>));
    return cuda::preload(normalize_scattered<kCentred, End>);
  }
  return Status::success();
}

// Which threads hold rows.
struct Team {
  int passes, lanes, teams;  // vectors of a thread, threads of a row, rows of a block
};

Team team_of(const Norm& norm, const Device& device) {
  const int64_t vectors = norm.length() / kEach, multiprocessors = device.multiprocessors;
  const bool few = norm.rows <= 2 * multiprocessors;
  if (vectors <= kWarp || (!few && vectors <= kWarpPasses * kWarp)) {
    const int64_t wanted = norm.rows / (4 * std::max<int64_t>(multiprocessors, 1));
    return {vectors > kWarp ? kWarpPasses : 1, kWarp,
            static_cast<int>(std::clamp<int64_t>(wanted, 1, kFewWarps))};
  }
  // Few rows: as many threads as there are; many: more bytes under way for each.
  const int passes = few && vectors <= kMostThreads ? 1 : kBlockPasses;
  return {passes, static_cast<int>(cuda::ceil_div(vectors, passes * kWarp)) * kWarp, 1};
}

bool is_of_warps(const Team& team) { return team.lanes == kWarp && team.passes <= kWarpPasses; }

template <bool kCentred, class End>
NormKernel<End> kernel_of(const Team& team) {
  const auto by_passes = [&](auto one, auto several) { return team.passes == 1 ? one : several; };
  if constexpr (kForAll<End>)
    if (is_of_warps(team))
      return by_passes(kHeld<kCentred, End, 1, kFewThreads>,
                       kHeld<kCentred, End, kWarpPasses, kFewThreads>);
  if (team.lanes <= kHalfThreads)
    return by_passes(kHeld<kCentred, End, 1, kHalfThreads>,
                     kHeld<kCentred, End, kBlockPasses, kHalfThreads>);
  return by_passes(kHeld<kCentred, End, 1, kMostThreads>,
                   kHeld<kCentred, End, kBlockPasses, kMostThreads>);
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

RowArgs arguments_of(const Norm& norm, int lanes) {
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
          .lanes = lanes,
          .weight_offset = norm.weight_offset,
          .weight_dtype = norm.weight_dtype,
          .bias_dtype = norm.bias_dtype,
          .residual_dtype = norm.residual_dtype,
          .output_dtype = norm.output_dtype,
          .round_before_weight = norm.round_before_weight};
}

template <bool kCentred, class End>
Status launch_held(const Norm& norm, const Team& team, const typename End::Args& end,
                   Bound& bound) {
  const cuda::Grid grid = {
      .blocks = std::min(cuda::ceil_div(norm.rows, team.teams), cuda::kMaxIndex),
      .threads = dim3(static_cast<unsigned>(team.lanes * team.teams))};
  return cuda::launch(kernel_of<kCentred, End>(team), grid,
                      NormArgs<End>{arguments_of(norm, team.lanes), end}, bound);
}

template <bool kCentred, class End>
Status launch_norm(const Norm& norm, bool held, const typename End::Args& end, const Device& device,
                   Bound& bound) {
  if (norm.rows == 0) return Status::success();
  if (held) return launch_held<kCentred, End>(norm, team_of(norm, device), end, bound);
  const cuda::Grid grid = {.blocks = std::min(norm.rows, cuda::kMaxIndex),
                           .threads = dim3(kFewThreads)};
  return cuda::launch(normalize_scattered<kCentred, End>, grid,
                      NormArgs<End>{arguments_of(norm, kFewThreads), end}, bound);
}

// With codes, by kernels of their own for some of them.
template <bool kCentred>
Status launch_codes(const Norm& norm, const affine::RowCodesOf<Element>& codes,
                    const Device& device, Bound& bound) {
  const bool held = is_held(norm) && codes.held;
  if constexpr (!kCentred) {
    using enum affine::RowKind;
    const Team team = team_of(norm, device);
    const bool known = held && norm.rows > 0 && !is_of_warps(team);
    const affine::RowKind kind = known ? kind_of(codes.args) : Any;
    if (kind == Int8) return launch_held<kCentred, StoreCodes<Int8>>(norm, team, codes.args, bound);
    if (kind == E4M3) return launch_held<kCentred, StoreCodes<E4M3>>(norm, team, codes.args, bound);
  }
  return launch_norm<kCentred, StoreAnyCodes>(norm, held, codes.args, device, bound);
}

// --- Kernels of the registry ---------------------------------------------------------------------

// Of an operator with these fields; kNormOf makes a Norm of a call.
template <class Fields, Norm (*kNormOf)(const Call&), bool kCentred>
struct FloatKernels {
  static Status prepare(const Descriptor&, const Device&, State&) {
    return preload_norms<kCentred, StoreFloats>();
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
  static Status prepare(const Descriptor&, const Device&, State&) {
    if constexpr (!kCentred) {
      PLANQ_TRY((preload_norms<kCentred, StoreCodes<affine::RowKind::Int8>>()));
      PLANQ_TRY((preload_norms<kCentred, StoreCodes<affine::RowKind::E4M3>>()));
    }
    return preload_norms<kCentred, StoreAnyCodes>();
  }
  static Status bind(const Call& call, Bound& bound) {
    const auto& f = call.fields<Fields>();
    const Norm norm = kNormOf(call);
    const affine::CodeOperands operands(call.operands, kOutput);
    const affine::RowCodesOf<Element> codes(f.shape, f.output_dtype, f.quantized, operands);
    return launch_codes<kCentred>(norm, codes, call.device, bound);
  }
  static constexpr auto kernels(std::string_view op) {
    if constexpr (sizeof(Element) == 2)
      return std::array{affine::quantized_kernel<cuda::kElement, Backend::Cuda>(op, "rows", rejects,
                                                                                prepare, bind)};
    else
      return std::array<Kernel, 0>{};
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
