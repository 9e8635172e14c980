// activation on CUDA: a thread has units of neighbours. The file that includes this names the type
// of the input: see cuda/element.cuh.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/sku.h"
#include "cuda/element.cuh"
#include "cuda/element_units.cuh"
#include "cuda/held_columns.cuh"
#include "cuda/value_table.cuh"
#include "ops/activation/activation/arithmetic.h"
#include "ops/affine/row_codes.cuh"

namespace planq::activation {
namespace {

using cuda::Element;

template <ActivationFunction kFunction>
struct Fixed {
  template <int kCount>
  __device__ __forceinline__ static void apply(float (&values)[kCount]) {
#pragma unroll
    for (float& value : values) value = value_of<kFunction>(value);
  }
};
// Units of one element, and of two types, do without a kernel for each function.
using AnyFunction = cuda::Chosen<ActivationFunction, Fixed>;

// Values of any function, where a table does not have them all.
__device__ __noinline__ void compute_values(float* values, int count, ActivationFunction function) {
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    float value[1] = {values[i]};
    AnyFunction{function}.apply(value);
    values[i] = value[0];
  }
}

// Any function by a table, which is made when the kernel runs: one kernel is enough for all of
// them.
struct Tabulated {
  using Table = cuda::ValueTable<Element>;

  ActivationFunction function;
  Table table{};

  __device__ __forceinline__ void open(void* memory) {
    table.values = static_cast<float*>(memory);
    table.fill([&](float x) {
      float value[1] = {x};
      AnyFunction{function}.apply(value);
      return value[0];
    });
  }
  template <int kCount>
  __device__ __forceinline__ void apply(float (&values)[kCount]) const {
    if (table.replace(values)) return;
    float computed[kCount];  // in memory, so that `values` can be in registers
#pragma unroll
    for (int i = 0; i < kCount; ++i) computed[i] = values[i];
    compute_values(computed, kCount, function);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = computed[i];
  }
};
// Whether a table is faster: the type has few numbers, and the function is more than a comparison.
constexpr bool kHasTable = sizeof(Element) == 2;
constexpr bool takes_table(ActivationFunction function) {
  return kHasTable && function != ActivationFunction::Relu &&
         function != ActivationFunction::ReluSquared;
}

// What is read for an element of the output: one element, one of each side, or a pair.
enum class Given { Single, Sides, Pair };

template <class U, Given kGiven>
inline constexpr int kUnit =
    cuda::kVectorBytes /
    static_cast<int>(std::max(sizeof(Element) * (kGiven == Given::Pair ? 2 : 1), sizeof(U)));

template <class U, class F, Given kGiven, int kCount>
struct Activation {
  static constexpr int kEach = kCount;
  static constexpr bool kPairs = kGiven == Given::Pair, kSides = kGiven == Given::Sides;
  struct Loaded {
    cuda::UnitElements<Element, kPairs ? 2 * kEach : kEach> gate;  // with the up side, of pairs
    cuda::UnitElements<Element, kSides ? kEach : 1> up;
  };

  const Element *gate, *up;
  U* output;
  F function;

  static constexpr int kSharedBytes = cuda::ValueTable<Element>::kBytes;
  __device__ __forceinline__ void open(void* memory) { function.open(memory); }

  __device__ __forceinline__ void load(const cuda::Unit& unit, Loaded& to) const {
    const Element* const from = gate + unit.row[kGateSide] + unit.column * (kPairs ? 2 : 1);
    if constexpr (kPairs && kEach == 1)
      to.gate.load_each(from, 2);
    else
      to.gate.load(from, unit.count * (kPairs ? 2 : 1));
    if constexpr (kSides) to.up.load(up + unit.row[kUpSide] + unit.column, unit.count);
  }
  __device__ __forceinline__ void run(const cuda::Unit& unit, const Loaded& from) const {
    float values[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) values[i] = from.gate[kPairs ? 2 * i : i];
    function.apply(values);
    if constexpr (kPairs || kSides) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) values[i] *= kPairs ? from.gate[2 * i + 1] : from.up[i];
    }
    cuda::UnitElements<U, kEach> result;
    result.narrow(values);
    result.store(output + unit.row[kOutputSide] + unit.column, unit.count);
  }
};

template <class U>
inline constexpr bool kHasFixed = std::is_same_v<U, Element>;

template <class U, Given kGiven>
using ByTable = Activation<U, Tabulated, kGiven, kUnit<U, kGiven>>;

template <class U, Given kGiven>
Status preload_given(ActivationFunction function) {
  constexpr int kWhole = kUnit<U, kGiven>;
  PLANQ_TRY((cuda::preload(cuda::element_units<Activation<U, AnyFunction, kGiven, 1>>)));
  if constexpr (!kHasFixed<U>) {
    return cuda::preload(cuda::element_units<Activation<U, AnyFunction, kGiven, kWhole>>);
  } else {
    if constexpr (kHasTable)
      PLANQ_TRY(cuda::preload(cuda::resident_units<ByTable<U, kGiven>>,
                              ByTable<U, kGiven>::kSharedBytes));
    return cuda::by_enumerator<ActivationFunction, Fixed>(function, [](auto fixed) {
      return cuda::preload(cuda::element_units<Activation<U, decltype(fixed), kGiven, kWhole>>);
    });
  }
}

template <class U, Given kGiven>
Status launch_given(const Sides& sides, const Call& call, Bound& bound) {
  constexpr int kWhole = kUnit<U, kGiven>, kSize = sizeof(Element);
  const auto* const gate = static_cast<const Element*>(sides.gate.data);
  const auto* const up = static_cast<const Element*>(sides.up.data);
  auto* const output = static_cast<U*>(call.operands[kOutput].data);
  const AnyFunction any = {call.fields<Fields>().function};
  const bool takes = cuda::takes_units(
      sides.layout, kWhole,
      {{gate, kSize, kGiven == Given::Pair ? 2 : 1}, {up, kSize}, {output, sizeof(U)}});
  if (!takes)
    return cuda::launch_units(Activation<U, AnyFunction, kGiven, 1>{gate, up, output, any},
                              sides.layout, call, bound);
  if constexpr (!kHasFixed<U>) {
    return cuda::launch_units(Activation<U, AnyFunction, kGiven, kWhole>{gate, up, output, any},
                              sides.layout, call, bound);
  } else {
    if constexpr (kHasTable)
      if (takes_table(any.value) &&
          cuda::is_worth_table<Element>(sides.layout.elements(), call.device.multiprocessors))
        return cuda::launch_resident(ByTable<U, kGiven>{gate, up, output, {any.value}},
                                     sides.layout, call, bound);
    return cuda::by_enumerator<ActivationFunction, Fixed>(any.value, [&](auto fixed) {
      return cuda::launch_units(
          Activation<U, decltype(fixed), kGiven, kWhole>{gate, up, output, fixed}, sides.layout,
          call, bound);
    });
  }
}

// --- Rows that become codes ----------------------------------------------------------------------

// A cluster of blocks has a row, so that one row keeps several multiprocessors busy: its vectors
// lie one block's after another's. Rows that do not lie as vectors, or are longer, are made again
// for each pass by single elements. Results have the input's type.
constexpr int kRowThreads = 512, kFewRowThreads = 256, kMostCluster = 8;
constexpr int kScatteredThreads = 256;
// Vectors of a thread: one where rows are few, and several where they are many or long.
constexpr int kSeveral = 4;

struct CodeArgs {
  IndexSpaceOf<kElementOperands> layout;
  const Element *gate, *up;
  ActivationFunction function;
  std::int64_t rows;
  int cluster;
  affine::RowCodes<Element> codes;
};

constexpr int kResults = affine::kPerVector<Element>;
constexpr bool kHasGroups = affine::has_kind<Element>(affine::RowKind::Int8Groups);

// What is read for a vector of results.
template <Given kGiven>
struct Sources {
  static constexpr bool kPairs = kGiven == Given::Pair, kSides = kGiven == Given::Sides;
  cuda::Packed<Element, kPairs ? 2 * kResults : kResults> gate;
  cuda::Packed<Element, kSides ? kResults : 1> up;

  __device__ __forceinline__ void load(const CodeArgs& args, const ElementOffsets& at, int column) {
    gate.load(args.gate + at.at[kGateSide] + column * (kPairs ? 2 : 1));
    if constexpr (kSides) up.load(args.up + at.at[kUpSide] + column);
  }
  // The same for the only vector of a thread. The assembler would load the up side when the
  // function has been computed: `nothing`, which is 0, makes the gate wait for it.
  __device__ __forceinline__ void load_together(const CodeArgs& args, const ElementOffsets& at,
                                                int column, std::uint32_t nothing) {
    load(args, at, column);
    if constexpr (kSides) gate.words[0] |= up.words[0] & nothing;
  }
  template <class F>
  __device__ __forceinline__ uint4 results(const F& function) const {
    float values[kResults];
#pragma unroll
    for (int i = 0; i < kResults; ++i) values[i] = gate[kPairs ? 2 * i : i];
    function.apply(values);
    if constexpr (kPairs || kSides) {
#pragma unroll
      for (int i = 0; i < kResults; ++i) values[i] *= kPairs ? gate[2 * i + 1] : up[kSides ? i : 0];
    }
    return cuda::packed<Element>(values).vector(0);
  }
};

// The function is one that is known, or any.
template <class F>
__device__ __forceinline__ F function_of(const CodeArgs& args) {
  if constexpr (std::is_same_v<F, AnyFunction>)
    return {args.function};
  else
    return {};
}

template <Given kGiven, int kPasses, class F, affine::RowKind kKind>
__global__ void __launch_bounds__(kRowThreads)
    activate_held(const __grid_constant__ CodeArgs args) {
  cuda::follow_previous();
  if (args.cluster > 1 && args.codes.measures_rows())
    affine::open_exchange<Element>(args.cluster, args.codes.spec.mode == Mode::Symmetric);
  const int threads = static_cast<int>(blockDim.x);
  const std::int64_t row = cuda::cluster_index();
  const int block = args.cluster > 1 ? cuda::cluster_rank() : 0;
  auto columns =
      cuda::held_columns<kPasses, kResults>(static_cast<int>(threadIdx.x), args.codes.length);
  columns.first += block * threads * kPasses * kResults;
  const ElementOffsets at = cuda::row_offsets(args.layout, row);
  uint4 v[kPasses] = {};
  // The next vector is on its way while one is computed.
  Sources<kGiven> sources;
  if (columns.has(0)) sources.load(args, at, columns.at(0));
#pragma unroll 1
  for (int p = 0; p < kPasses; ++p) {
    Sources<kGiven> next;
    if (p + 1 < kPasses && columns.has(p + 1)) next.load(args, at, columns.at(p + 1));
    affine::move_down(v);
    if (columns.has(p)) v[kPasses - 1] = sources.results(function_of<F>(args));
    sources = next;
  }
  affine::store_held_row<kKind>(args.codes, row, affine::RowTeam{threads, args.cluster}, columns,
                                v);
}

// Many rows by a table: a block has one after another. The table of bfloat16 leaves room for two
// blocks on a multiprocessor.
constexpr bool kSmallTable = std::is_same_v<Element, math::Bfloat16>;
constexpr int kTableBlocks = kSmallTable ? 2 : 1;
constexpr int kTableThreads = kSmallTable ? 512 : 1024, kTableVectors = kSmallTable ? 4 : 2;

template <Given kGiven, affine::RowKind kKind>
__global__ void __launch_bounds__(kTableThreads, kTableBlocks)
    activate_tabulated(const __grid_constant__ CodeArgs args) {
  cuda::follow_previous();
  Tabulated function = {args.function};
  function.open(cuda::dynamic_shared());
  const auto columns =
      cuda::held_columns<kTableVectors, kResults>(static_cast<int>(threadIdx.x), args.codes.length);
#pragma unroll 1
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const ElementOffsets at = cuda::row_offsets(args.layout, row);
    Sources<kGiven> sources[kTableVectors];
#pragma unroll
    for (int p = 0; p < kTableVectors; ++p)  // of no column: the first vector
      sources[p].load(args, at, columns.has(p) ? columns.at(p) : 0);
    uint4 v[kTableVectors];
#pragma unroll
    for (int p = 0; p < kTableVectors; ++p) v[p] = sources[p].results(function);
    affine::store_held_row<kKind>(args.codes, row, affine::RowTeam{static_cast<int>(blockDim.x), 1},
                                  columns, v);
    __syncthreads();  // what the block has exchanged has been read
  }
}

// Groups of 32 know nothing of each other: a thread has one vector, wherever its row begins.
constexpr int kGroupThreads = 256, kFewGroupThreads = 64;

struct GroupArgs : CodeArgs {
  cuda::Divider vectors;      // of a row
  std::uint32_t nothing = 0;  // see Sources::load_together()
};

template <Given kGiven, class F>
__global__ void __launch_bounds__(kGroupThreads)
    activate_groups(const __grid_constant__ GroupArgs args) {
  const auto place = static_cast<std::uint32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  const std::uint32_t row = args.vectors.quotient(place);
  const bool exists = row < args.rows;
  const cuda::HeldColumns<1, kResults> columns(
      static_cast<int>(place - row * args.vectors.divisor) * kResults,
      exists ? args.codes.length : 0);
  cuda::follow_previous();
  // Beyond the last row: its vectors.
  const auto from = exists ? row : static_cast<std::uint32_t>(args.rows - 1);
  Sources<kGiven> sources;
  const ElementOffsets at = cuda::offsets_of_axis(args.layout.axes[0], from);
  sources.load_together(args, at, columns.at(0), args.nothing);
  uint4 v[1] = {sources.results(function_of<F>(args))};
  affine::store_held_row<affine::RowKind::Int8Groups>(args.codes, row, {cuda::kWarp, 1}, columns,
                                                      v);
}

template <Given kGiven>
__global__ void __launch_bounds__(kScatteredThreads)
    activate_scattered(const __grid_constant__ CodeArgs args) {
  cuda::follow_previous();
#pragma unroll 1
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const ElementOffsets at = cuda::row_offsets(args.layout, row);
    const Element* const gate = args.gate + at.at[kGateSide];
    affine::store_scattered_row(args.codes, row, [&](int i) {
      float value[1] = {math::widened(gate[kGiven == Given::Pair ? 2 * i : i])};
      AnyFunction{args.function}.apply(value);
      if constexpr (kGiven == Given::Pair) value[0] *= math::widened(gate[2 * i + 1]);
      if constexpr (kGiven == Given::Sides) value[0] *= math::widened(args.up[at.at[kUpSide] + i]);
      return math::narrowed<Element>(value[0]);
    });
    __syncthreads();  // what the block has exchanged has been read
  }
}

// How rows are spread: threads of a block, vectors of a thread, blocks of a row.
struct RowSpread {
  int threads, passes, cluster;
};
RowSpread spread_of(std::int64_t length, std::int64_t rows, const Device& device) {
  const std::int64_t vectors = cuda::ceil_div(length, kResults);
  const auto blocks = [&](const RowSpread& s) {
    return static_cast<int>(cuda::ceil_div(vectors, std::int64_t{s.threads} * s.passes));
  };
  const bool few = rows * vectors <= std::int64_t{device.multiprocessors} * 2 * kRowThreads;
  RowSpread spread = {kRowThreads, kSeveral, 1};
  for (const int threads : {kRowThreads, kFewRowThreads}) {
    const RowSpread fast = {threads, 1, 1};
    if (few && blocks(fast) <= kMostCluster) spread = fast;
  }
  spread.cluster = blocks(spread);
  const std::int64_t each = cuda::ceil_div(vectors, std::int64_t{spread.cluster} * spread.passes);
  spread.threads = static_cast<int>(cuda::ceil_div(each, cuda::kWarp)) * cuda::kWarp;
  return spread;
}

using HeldKernel = void (*)(CodeArgs);

// The most frequent layer has kernels of its own: SwiGLU with the sides apart.
template <Given kGiven, int kPasses>
HeldKernel held_kernel(ActivationFunction function, affine::RowKind kind) {
  using enum affine::RowKind;
  using Silu = Fixed<ActivationFunction::Silu>;
  if constexpr (kGiven == Given::Sides && affine::has_kind<Element>(Int8)) {
    const bool silu = function == ActivationFunction::Silu;
    if (silu && kind == Int8) return activate_held<kGiven, kPasses, Silu, Int8>;
    if (silu && kind == E4M3) return activate_held<kGiven, kPasses, Silu, E4M3>;
    if (silu && kind == E4M3Groups) return activate_held<kGiven, kPasses, Silu, E4M3Groups>;
  }
  return activate_held<kGiven, kPasses, AnyFunction, Any>;
}

// By a table there are the kernels that layers want most: gated, with the sides apart, of a kind
// that is known. Null: none takes this call.
template <Given kGiven>
HeldKernel table_kernel(ActivationFunction function, affine::RowKind kind) {
  if constexpr (kGiven == Given::Sides && kHasTable) {
    if (takes_table(function) && kind == affine::RowKind::Int8)
      return activate_tabulated<kGiven, affine::RowKind::Int8>;
    if (takes_table(function) && kind == affine::RowKind::E4M3)
      return activate_tabulated<kGiven, affine::RowKind::E4M3>;
    if (takes_table(function) && kind == affine::RowKind::E4M3Groups)
      return activate_tabulated<kGiven, affine::RowKind::E4M3Groups>;
  }
  return nullptr;
}

template <Given kGiven>
HeldKernel table_kernel(const CodeArgs& args, const Device& device) {
  const std::int64_t length = args.codes.length;
  const bool fits = length <= std::int64_t{kTableThreads} * kTableVectors * kResults;
  if (!fits || !cuda::is_worth_table<Element>(args.rows * length, device.multiprocessors))
    return nullptr;
  return table_kernel<kGiven>(args.function, affine::kind_of(args.codes));
}

using GroupKernel = void (*)(GroupArgs);

// Of groups there are kernels of their own for the gates of language models.
template <Given kGiven>
GroupKernel group_kernel(ActivationFunction function) {
  if constexpr (kGiven == Given::Sides) {
    using enum ActivationFunction;
    if (function == Silu) return activate_groups<kGiven, Fixed<Silu>>;
    if (function == GeluTanh) return activate_groups<kGiven, Fixed<GeluTanh>>;
  }
  return activate_groups<kGiven, AnyFunction>;
}

// Rows of kind Int8Groups along one axis, where 31 bits number their vectors.
template <Given kGiven>
Status launch_groups(const CodeArgs& args, std::int64_t vectors, const Call& call, Bound& bound) {
  const auto of_row = static_cast<std::uint32_t>(args.codes.length / kResults);
  const bool few = vectors <= std::int64_t{call.device.multiprocessors} * 2 * kGroupThreads;
  const int threads = few ? kFewGroupThreads : kGroupThreads;
  const cuda::Grid grid = {.blocks = cuda::ceil_div(vectors, threads),
                           .threads = dim3(static_cast<unsigned>(threads)),
                           .dependent = has_dependent_launches(call.device.arch)};
  return cuda::launch(group_kernel<kGiven>(args.function), grid,
                      GroupArgs{args, cuda::Divider(of_row)}, bound);
}

template <Given kGiven>
Status launch_codes(const CodeArgs& given, bool held, const Call& call, Bound& bound) {
  CodeArgs args = given;
  const affine::RowKind kind = held ? affine::kind_of(args.codes) : affine::RowKind::Any;
  const bool dependent = has_dependent_launches(call.device.arch);
  if constexpr (kHasGroups) {
    const std::int64_t vectors = args.rows * (args.codes.length / kResults);
    if (kind == affine::RowKind::Int8Groups && cuda::is_one_axis(args.layout) &&
        vectors <= cuda::kMaxIndex - kGroupThreads)
      return launch_groups<kGiven>(args, vectors, call, bound);
  }
  if (const HeldKernel kernel = held ? table_kernel<kGiven>(args, call.device) : nullptr) {
    const std::int64_t warps =
        cuda::ceil_div(args.codes.length, kTableVectors * kResults * cuda::kWarp);
    const cuda::Grid grid = {
        .blocks = std::min<std::int64_t>(args.rows,
                                         std::max(call.device.multiprocessors, 1) * kTableBlocks),
        .threads = dim3(static_cast<unsigned>(warps * cuda::kWarp)),
        .dependent = dependent,
        .shared_bytes = Tabulated::Table::kBytes};
    return cuda::launch(kernel, grid, args, bound);
  }
  const RowSpread spread = spread_of(args.codes.length, args.rows, call.device);
  if (!held || spread.cluster > kMostCluster || args.rows > cuda::kMaxIndex / kMostCluster) {
    const cuda::Grid grid = {.blocks = std::min(args.rows, cuda::kMaxIndex),
                             .threads = dim3(kScatteredThreads),
                             .dependent = dependent};
    return cuda::launch(activate_scattered<kGiven>, grid, args, bound);
  }
  args.cluster = spread.cluster;
  const cuda::Grid grid = {.blocks = args.rows * spread.cluster,
                           .threads = dim3(static_cast<unsigned>(spread.threads)),
                           .cluster = spread.cluster,
                           .dependent = dependent};
  return cuda::launch(spread.passes == 1 ? held_kernel<kGiven, 1>(args.function, kind)
                                         : held_kernel<kGiven, kSeveral>(args.function, kind),
                      grid, args, bound);
}

template <Given kGiven>
Status preload_codes(ActivationFunction function) {
  using enum affine::RowKind;
  for (const auto kind : {Any, Int8, E4M3, E4M3Groups}) {
    PLANQ_TRY(cuda::preload(held_kernel<kGiven, 1>(function, kind)));
    PLANQ_TRY(cuda::preload(held_kernel<kGiven, kSeveral>(function, kind)));
    if (const HeldKernel kernel = table_kernel<kGiven>(function, kind))
      PLANQ_TRY(cuda::preload(kernel, Tabulated::Table::kBytes));
  }
  if constexpr (kHasGroups) PLANQ_TRY(cuda::preload(group_kernel<kGiven>(function)));
  return cuda::preload(activate_scattered<kGiven>);
}

// Calls use(GivenConstant) for a descriptor.
template <Given kGiven>
using GivenConstant = std::integral_constant<Given, kGiven>;
template <class Use>
Status by_given(const Fields& f, const Use& use) {
  if (!f.gated) return use(GivenConstant<Given::Single>{});
  if (f.layout == GateLayout::Interleaved) return use(GivenConstant<Given::Pair>{});
  return use(GivenConstant<Given::Sides>{});
}

struct CodeKernels {
  static Reason rejects(const Descriptor& descriptor, const Device&) {
    const Fields& f = descriptor.as<Fields>();
    const Reason reason = expect(ReasonKind::DType, "input_dtype", cuda::kElement, f.input_dtype);
    if (!reason.accepted()) return reason;
    return affine::rejects_row_codes<cuda::kElement>(f.shape, f.output_dtype, f.quantized);
  }
  static Status prepare(const Descriptor& descriptor, const Device&, State&) {
    const Fields& f = descriptor.as<Fields>();
    return by_given(f, [&](auto given) { return preload_codes<given>(f.function); });
  }
  static Status bind(const Call& call, Bound& bound) {
    const Fields& f = call.fields<Fields>();
    const Sides sides(call, true);
    const std::int64_t rows = sides.layout.rows.size();
    if (rows == 0) return Status::success();  // rows without elements have scales
    const affine::CodeOperands operands(call.operands, kOutput);
    const affine::RowCodesOf<Element> codes(f.shape, f.output_dtype, f.quantized, operands);
    const CodeArgs args = {sides.layout.rows,
                           static_cast<const Element*>(sides.gate.data),
                           static_cast<const Element*>(sides.up.data),
                           f.function,
                           rows,
                           1,
                           codes.args};
    return by_given(f, [&](auto given) {
      constexpr int kFactor = given == Given::Pair ? 2 : 1;
      const bool whole =
          cuda::takes_units(sides.layout, kResults,
                            {{args.gate, sizeof(Element), kFactor}, {args.up, sizeof(Element)}});
      return launch_codes<given>(args, whole && codes.held, call, bound);
    });
  }
  static constexpr auto kernels() {
    return std::array{affine::quantized_kernel<cuda::kElement, Backend::Cuda, 90>(
        "activation", "rows", rejects, prepare, bind)};
  }
};

// --- Kernels of the registry ---------------------------------------------------------------------

template <DType kOutputType>
Status prepare(const Descriptor& descriptor, const Device&, State&) {
  using U = math::Stored<kOutputType>;
  const Fields& f = descriptor.as<Fields>();
  return by_given(f, [&](auto given) { return preload_given<U, given>(f.function); });
}

template <DType kOutputType>
Status bind(const Call& call, Bound& bound) {
  using U = math::Stored<kOutputType>;
  const Fields& f = call.fields<Fields>();
  const Sides sides(call);
  return by_given(f, [&](auto given) { return launch_given<U, given>(sides, call, bound); });
}

template <DType kOutputType>
constexpr Kernel kActivation =
    kernel<cuda::kElement, kOutputType, Backend::Cuda>(prepare<kOutputType>, bind<kOutputType>);

constexpr auto kKernels =
    joined(std::array{kActivation<DType::Float16>, kActivation<DType::BFloat16>,
                      kActivation<DType::Float32>},
           CodeKernels::kernels(),
           affine::quantized_parts<Fields, Backend::Cuda, cuda::kElement>("activation"));

}  // namespace
}  // namespace planq::activation
