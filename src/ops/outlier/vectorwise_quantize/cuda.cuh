// vectorwise_quantize on CUDA: ranges, statistics of them, then codes.
#pragma once

#include <array>
#include <cstdint>

#include "core/scratch.h"
#include "core/sku.h"
#include "cuda/element.cuh"
#include "ops/affine/affine.cuh"
#include "ops/affine/ranges/cuda.h"
#include "ops/outlier/vectorwise_quantize/desc.h"

namespace planq::vectorwise_quantize {
namespace {

using cuda::ElementPlace;
using In = cuda::Element;
using Value = math::Compute<In>;
constexpr DType kIn = cuda::kElement;

constexpr int kStatisticThreads = 128;
// A grid has fewer than 2^31 thread blocks; a grid-stride loop covers the rest.
constexpr std::int64_t kMostBlocks = 1 << 30;

__global__ void __launch_bounds__(kStatisticThreads)
    settle_statistics(const __grid_constant__ Statistics<Value> args) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kStatisticThreads;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kStatisticThreads + threadIdx.x;
  for (; i < args.segments.count; i += step) args.settle(i);
}

struct QuantizeArgs {
  const In* input;
  std::uint8_t* output;
};

// The numbers that elements are quantized with, and whether the fast path is exact.
struct Numbers {
  outlier::Factors<Value> factors;
  Value inverse;  // of forms that divide
  bool fast_is_exact;
};

template <VectorwiseForm kForm>
struct Quantize {
  using C = Value;
  using Args = QuantizeArgs;
  static constexpr bool kHasRule = false;
  static constexpr int kUnit = 1;
  static constexpr int kVector = cuda::kPerVector<In>;
  static constexpr std::array<int, 3> kVectorBytes = {16, kVector, 1};
  static constexpr cuda::TileShape kTile = cuda::kReadingTile, kGroupTile = kTile;
  static constexpr cuda::ColumnShape kColumnShape{4, false, 4};
  using Vector = uint4;
  using Result = cuda::Word<kVector>;
  using Parameters = Numbers;

  __device__ __forceinline__ static Vector load(const Args& args, const ElementPlace& place) {
    return cuda::load_once(args.input + place.at.at[0]);
  }
  template <bool>
  __device__ __forceinline__ static Parameters parameters(const Args&, const cuda::GivenParameters&,
                                                          const cuda::StoredParameters<C>& stored) {
    const auto factors = outlier::factors_of<C>(kForm, stored.scale, stored.zero_point);
    if constexpr (outlier::has_zero_point(kForm))
      return {factors, C{0}, math::is_finite(stored.scale)};
    if constexpr (!outlier::is_divided(kForm)) return {factors, C{0}, factors.product};
    const bool window =
        stored.scale >= cuda::kSmallScale<C> && stored.scale <= cuda::kLargeScale<C>;
    return {factors, cuda::inverse_of(stored.scale), window};
  }

  // The value that rounds to the code of an element, given the parameters of its segment. Quotients
  // too small to be exact (see cuda/codes.cuh) do no harm: their code is 0.
  __device__ __forceinline__ static C fast_value(C x, const Numbers& n) {
    const outlier::Factors<C>& f = n.factors;
    if constexpr (outlier::has_zero_point(kForm)) {
      C value = x * f.scale;
      value = value + f.zero;
      return math::clamp(value, C(0), C(255));
    }
    if constexpr (!outlier::is_divided(kForm)) return x * f.factor;
    const C clipped = math::clamp(x, -f.scale, f.scale);
    return cuda::quotient<true>(clipped, f.scale, n.inverse) * C(127);
  }
  // Returns whether the codes are exact; otherwise the caller takes the slow path.
  template <bool, class ParametersOf>
  __device__ __forceinline__ static bool run(const Args&, const Vector& vector, const ElementPlace&,
                                             const ParametersOf& of, Result& result) {
    bool exact = true;
    std::uint32_t codes[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      exact = exact && of(j).fast_is_exact;
      const C value = fast_value(cuda::element_of<In>(vector, j), of(j));
      codes[j] = static_cast<std::uint32_t>(cuda::rounded(value));
    }
    result = cuda::pack<cuda::Codes::Byte>(codes, NibbleOrder::LowFirst);
    return exact;
  }
  __device__ __forceinline__ static void store(const Args& args, const ElementPlace& place,
                                               Result codes) {
    cuda::store_word<kVector>(args.output + place.at.at[1], codes);
  }
  template <class PlaceOf>
  __device__ __forceinline__ static void run_single(const Args& args,
                                                    const cuda::GivenParameters& given,
                                                    const PlaceOf& place_of, int first, int) {
    const ElementPlace place = place_of(first);
    const auto stored = given.read_one<C>(place.at);
    const C x = math::widen(cuda::load_single(args.input + place.at.at[0]));
    const auto factors = outlier::factors_of<C>(kForm, stored.scale, stored.zero_point);
    cuda::store_once(args.output + place.at.at[1],
                     static_cast<std::uint8_t>(outlier::vectorwise_code<C>(kForm, x, factors)));
  }
};

// Calls use() with one form that stands for all forms that make codes alike.
template <class Use>
Status by_form(VectorwiseForm form, const Use& use) {
  using Form = VectorwiseForm;
  if (outlier::has_zero_point(form)) return use(Quantize<Form::Zeropoint>{});
  return outlier::is_divided(form) ? use(Quantize<Form::Truncated>{})
                                   : use(Quantize<Form::Vector>{});
}

struct Booked {
  Value* low;
  cuda::RangePartials partials;
};

Booked book(const Fields& f, const cuda::RangePlan& plan, Scratch& scratch) {
  Booked booked{};
  if (outlier::has_zero_point(f.form)) {
    const Shape parameters = parameter_shape(f.shape, scope_of(f));
    booked.low = scratch.take<Value>(static_cast<std::size_t>(parameters.elements()));
  }
  booked.partials = cuda::book_ranges(plan, scratch);
  return booked;
}

std::size_t workspace(const Descriptor& descriptor, const Device& device) {
  const Fields& f = descriptor.as<Fields>();
  Scratch scratch;
  book(f, cuda::plan_ranges(problem_of(f), device), scratch);
  return scratch.bytes();
}

// The most that any number of rows needs: with fewer rows, a row may be measured in more pieces.
std::size_t largest_workspace(const Descriptor& descriptor, const Device& device) {
  const Fields& f = descriptor.as<Fields>();
  Scratch scratch;
  book(f, cuda::plan_ranges(problem_of(f), device, cuda::RangeMethod::Rows), scratch);
  scratch.take<std::byte>(cuda::largest_ranges(problem_of(f), device));
  return scratch.bytes();
}

Status prepare(const Descriptor& descriptor, const Device&, State&) {
  PLANQ_TRY(cuda::preload_ranges<In>());
  PLANQ_TRY(cuda::preload(settle_statistics));
  return by_form(descriptor.as<Fields>().form,
                 [](auto op) { return cuda::preload_elements<decltype(op)>(); });
}

Status launch_codes(const Fields& f, const Operands& operands, Bound& bound) {
  const bool zero_point = outlier::has_zero_point(f.form);
  const QuantizeArgs args = {static_cast<const In*>(operands[kInput].data),
                             static_cast<std::uint8_t*>(operands[kOutput].data)};
  const cuda::GivenParameters given = {
      operands[kScale].data, zero_point ? operands[kZeroPoint].data : nullptr, compute_dtype(kIn)};
  const std::array<ElementOperand, 5> layout = {ElementOperand{&operands[kInput]},
                                                {&operands[kOutput]},
                                                {},
                                                {&operands[kScale]},
                                                {zero_point ? &operands[kZeroPoint] : nullptr}};
  return by_form(f.form, [&](auto op) {
    return cuda::launch_elements<decltype(op)>(args, given, f.shape, scope_of(f), layout, bound);
  });
}

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const cuda::RangePlan plan = cuda::plan_ranges(problem_of(f), call.device);
  Scratch scratch(call.workspace);
  const Booked booked = book(f, plan, scratch);
  PLANQ_TRY(
      cuda::launch_ranges<In>(plan, ranges_of(f, operands, booked.low), booked.partials, bound));
  const Statistics<Value> statistics(f, operands, booked.low);
  if (statistics.segments.count == 0) return Status::success();
  const std::int64_t blocks =
      std::min(cuda::ceil_div(statistics.segments.count, kStatisticThreads), kMostBlocks);
  PLANQ_TRY(cuda::launch(settle_statistics, {blocks, kStatisticThreads}, statistics, bound));
  return launch_codes(f, operands, bound);
}

template <DType kOut>
constexpr Kernel make_kernel() {
  return {.op = "vectorwise_quantize",
          .body = "elements",
          .dtypes = kDTypes<kIn, kOut>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 0,
          .guarantee = guarantee<Value>(),
          .rejects = rejects<kIn, kOut>,
          .workspace = workspace,
          .prepare = prepare,
          .bind = bind,
          .largest_workspace = largest_workspace};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Int8>(), make_kernel<DType::UInt8>()};

}  // namespace

}  // namespace planq::vectorwise_quantize
