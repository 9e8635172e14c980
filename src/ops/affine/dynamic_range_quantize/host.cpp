// dynamic_range_quantize on the host: the numeric reference, and a real default.
//
// The vector loops (host_kernels.h) are compiled here for every instruction set; prepare() chooses
// among them by input type, output type and processor, and a launch (host_launch.h) drives them.

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/sku.h"
#include "host/codes.h"
#include "host/rows.h"
#include "host/simd.h"
#include "ops/affine/dynamic_range_quantize/desc.h"
#include "ops/affine/dynamic_range_quantize/host_launch.h"
#include "ops/affine/dynamic_range_quantize/host_segments.h"

#define PLANQ_LOOPS "ops/affine/dynamic_range_quantize/host_kernels.h"
#include "host/each_level.h"

namespace planq::dynamic_range_quantize {
namespace {

using math::Compute;

template <DType kDType>
struct TypeOf;
template <>
struct TypeOf<DType::Float16> {
  using type = math::Half;
};
template <>
struct TypeOf<DType::BFloat16> {
  using type = math::Bfloat16;
};
template <>
struct TypeOf<DType::Float32> {
  using type = float;
};
template <>
struct TypeOf<DType::Float64> {
  using type = double;
};

template <class T, DType kOutput, class Plan>
void choose_kernels(Plan& plan) {
#define PLANQ_CHOOSE(level)                                           \
  plan.range = level::range_kernels<T>();                             \
  plan.pack = level::pack;                                            \
  plan.settle = level::settle_symmetric<math::Compute<T>>;            \
  if constexpr (kOutput == DType::Float8E4M3FN) {                     \
    plan.quantize = level::quantize_kernels<T, level::E4M3Code>();    \
  } else if constexpr (kOutput == DType::Float8E5M2) {                \
    plan.quantize = level::quantize_kernels<T, level::E5M2Code>();    \
  } else {                                                            \
    plan.quantize = level::quantize_kernels<T, level::IntegerCode>(); \
  }
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) {
    PLANQ_CHOOSE(avx512)
    return;
  }
  if (level == host::Level::Avx2) {
    PLANQ_CHOOSE(avx2)
    return;
  }
#endif
  PLANQ_CHOOSE(baseline)
#undef PLANQ_CHOOSE
}

template <DType kInput, DType kOutput>
Status prepare(const Descriptor& descriptor, const Device&, State& state) {
  using T = typename TypeOf<kInput>::type;
  auto& plan = state.emplace<Prepared<Compute<T>>>();
  const Fields fields = with_groups(descriptor.as<Fields>());
  plan.recipe = recipe_of<Compute<T>>(fields);
  plan.scalar = {finite_range<T>, scalar_codes<T>};
  plan.element_bytes = sizeof(T);
  plan.four_bit = is_four_bit(kOutput);
  plan.plain = fields.mode == Mode::Symmetric && fields.quotient != Quotient::Ratio &&
               fields.scale_dtype == (sizeof(Compute<T>) == 4 ? DType::Float32 : DType::Float64);
  choose_kernels<T, kOutput>(plan);
  return Status::success();
}

template <class C>
Status compute(const Call& call, const Stream& stream) {
  const host::StrictFloat strict;
  Launch<C>(call.state.as<Prepared<C>>(), with_groups(call.fields<Fields>()), call.operands, stream)
      .run();
  return Status::success();
}

std::size_t workspace(const Descriptor&, const Device&) { return 0; }

template <ScopeKind kScope, DType kInput, DType kOutput>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& fields = descriptor.as<Fields>();
  const auto refuse = [](ReasonKind kind, std::string_view what, std::string_view own,
                         std::string_view asked) {
    return Reason::refuse(kind, "computes ", what, " ", own, ", not ", asked);
  };
  if (fields.input_dtype != kInput)
    return refuse(ReasonKind::DType, "input_dtype", name_of(kInput), name_of(fields.input_dtype));
  if (fields.output_dtype != kOutput)
    return refuse(ReasonKind::DType, "output_dtype", name_of(kOutput),
                  name_of(fields.output_dtype));
  if (fields.scope.kind != kScope)
    return refuse(ReasonKind::Scope, "scope", name_of(kScope), name_of(fields.scope.kind));
  return Reason::accept();
}

template <ScopeKind kScope, DType kInput, DType kOutput>
struct SkuParts {
  static constexpr std::array<std::string_view, 6> kParts = {
      "dynamic_range_quantize.", name_of(kScope), "/host/rows/", short_name(kInput), "_",
      short_name(kOutput)};
};

template <ScopeKind kScope, DType kInput, DType kOutput>
constexpr Kernel row() {
  using C = Compute<typename TypeOf<kInput>::type>;
  constexpr bool kDouble = std::is_same_v<C, double>;
  return {
      .sku = JoinedText<SkuParts<kScope, kInput, kOutput>>::view(),
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kDouble ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = kDouble ? DType::Float64 : DType::Float32,
                    .rounding = Rounding::NearestEven,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = std::string_view("exact integer maximum of magnitudes; IEEE division; "
                                              "round to nearest even; no reassociation")},
      .rejects = rejects<kScope, kInput, kOutput>,
      .workspace = workspace,
      .prepare = prepare<kInput, kOutput>,
      .bind = host::bind<compute<C>>,
  };
}

// One row per scope, input type and output type: the product of these three lists.
constexpr ScopeKind kScopes[] = {ScopeKind::Tensor, ScopeKind::Channel, ScopeKind::Token,
                                 ScopeKind::Group, ScopeKind::Block};
constexpr DType kInputs[] = {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64};
constexpr DType kOutputs[] = {DType::Int8,  DType::UInt8,        DType::Int4,
                              DType::UInt4, DType::Float8E4M3FN, DType::Float8E5M2};

template <std::size_t... kIndex>
constexpr std::array<Kernel, sizeof...(kIndex)> table(std::index_sequence<kIndex...>) {
  constexpr std::size_t kOuts = std::size(kOutputs), kIns = std::size(kInputs);
  return {row<kScopes[kIndex / kOuts / kIns], kInputs[kIndex / kOuts % kIns],
              kOutputs[kIndex % kOuts]>()...};
}

constexpr auto kRows = table(
    std::make_index_sequence<std::size(kScopes) * std::size(kInputs) * std::size(kOutputs)>{});

}  // namespace

}  // namespace planq::dynamic_range_quantize

PLANQ_KERNELS(dynamic_range_quantize, host, kRows);
