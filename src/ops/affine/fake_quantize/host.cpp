// fake_quantize on the host.
#include <array>
#include <cstdint>

#include "core/sku.h"
#include "host/bind.h"
#include "host/random.h"
#include "math/formats.h"
#include "ops/affine/elementwise/host.h"
#include "ops/affine/fake_quantize/desc.h"
#include "ops/affine/ranges/host.h"

namespace planq::fake_quantize {
namespace {

using math::Compute;
using math::Stored;

template <class T, bool kStochastic>
void run(const Fields& f, const Operands& operands, const host::GivenOperands& given,
         const OperandView* scale, const OperandView* zero_point, int threads) {
  using C = Compute<T>;
  const auto spec = spec_of<C>(f);
  const auto& loops = host::affine_loops<T>();
  const T* input = static_cast<const T*>(operands[kInput].data);
  T* output = static_cast<T*>(operands[kOutput].data);
  const std::uint64_t seed = kStochastic ? host::scalar_of(operands[kSeed]) : 0;
  const std::uint64_t offset = kStochastic ? host::scalar_of(operands[kOffset]) : 0;
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kInput]}, {&operands[kOutput]}, {}, {scale}, {zero_point}};
  host::for_each_chunk<C>(
      threads, f.shape, f.scope, layout, given, spec,
      [&](host::Chunk<C>& s, const host::ChunkPlace& place, std::int64_t count) {
        loops.widen(input + place.at.at[0], count, s.value);
        if constexpr (kStochastic) host::fill_uniforms(s.uniform, place.index, count, seed, offset);
        loops.fake(s, count, spec, kStochastic);
        loops.narrow(s.value, count, output + place.at.at[1]);
      });
}

template <class T, bool kStochastic>
Status compute(const Call& call, const Stream& stream) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const bool asymmetric = f.mode == Mode::Asymmetric;
  const OperandView* zero_point = asymmetric ? &operands[kZeroPoint] : nullptr;
  const host::GivenOperands given = {operands[kScale].data, asymmetric ? zero_point->data : nullptr,
                                     f.scale_dtype, f.zero_point_dtype};
  run<T, kStochastic>(f, operands, given, &operands[kScale], zero_point, stream.threads);
  return Status::success();
}

// Ranges, then parameters, then values: all read from the workspace by the same loops.
template <class T, bool kStochastic>
Status compute_dynamic(const Call& call, const Stream& stream) {
  using C = Compute<T>;
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  Scratch scratch(call.workspace);
  const SegmentArrays<C> segments(f, scratch);
  host::measure_ranges(range_problem(f), segments.ranges(f, operands[kInput]), stream);
  const auto spec = spec_of<C>(f);
  const Wanted wanted(f, operands);
  for (std::int64_t i = 0; i < segments.count; ++i) {
    const auto parameters = segments.parameters(spec, i);
    segments.scale[i] = parameters.scale;
    segments.inverse[i] = parameters.inverse;
    segments.zero_point[i] = parameters.zero_point;
    wanted.put(parameters, f.scale_dtype, i);
  }
  const OperandView view = contiguous_view(parameter_shape(f.shape, f.scope));
  const host::GivenOperands given = {
      segments.scale, segments.zero_point,   sizeof(C) == 8 ? DType::Float64 : DType::Float32,
      DType::Int32,   NibbleOrder::LowFirst, segments.inverse};
  run<T, kStochastic>(f, operands, given, &view, &view, stream.threads);
  return Status::success();
}

template <class C>
std::size_t dynamic_workspace(const Descriptor& descriptor, const Device&) {
  Scratch scratch;
  SegmentArrays<C>(descriptor.as<Fields>(), scratch);
  return scratch.bytes();
}

template <DType kType, Rounding kRounding, bool kDynamic>
constexpr Kernel make_kernel() {
  constexpr bool kWide = kType == DType::Float64;
  constexpr bool kStochastic = kRounding == Rounding::Stochastic;
  constexpr host::Compute kCompute =
      kDynamic ? compute_dynamic<Stored<kType>, kStochastic> : compute<Stored<kType>, kStochastic>;
  return {
      .op = "fake_quantize",
      .variant = variant_of(kDynamic),
      .arithmetic = arithmetic_of(kRounding),
      .body = "elements",
      .dtypes = kDTypes<kType, kType>,
      .revision = 2,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = kWide ? DType::Float64 : DType::Float32,
                    .rounding = kRounding,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = std::string_view("element by element; IEEE division; exact integer "
                                              "sums; draws by seed and element index alone")},
      .rejects = rejects<kType, kRounding, kDynamic>,
      .workspace = kDynamic ? dynamic_workspace<Compute<Stored<kType>>> : no_workspace,
      .prepare = nothing_to_prepare,
      .bind = host::bind<kCompute>,
  };
}

template <Rounding kRounding, bool kDynamic>
constexpr std::array<Kernel, 4> kernels_of() {
  return {make_kernel<DType::Float16, kRounding, kDynamic>(),
          make_kernel<DType::BFloat16, kRounding, kDynamic>(),
          make_kernel<DType::Float32, kRounding, kDynamic>(),
          make_kernel<DType::Float64, kRounding, kDynamic>()};
}

constexpr auto kKernels =
    joined(kernels_of<Rounding::NearestEven, false>(), kernels_of<Rounding::Stochastic, false>(),
           kernels_of<Rounding::NearestEven, true>(), kernels_of<Rounding::Stochastic, true>());

}  // namespace

}  // namespace planq::fake_quantize

PLANQ_KERNELS(fake_quantize, host, kKernels);
