// fake_quantize on the host.
#include <array>
#include <cstdint>

#include "core/rejects.h"
#include "core/sku.h"
#include "host/affine.h"
#include "host/rows.h"
#include "ops/fake_quantize/desc.h"

namespace planq::fake_quantize {
namespace {

using host::Stored;
using math::Compute;

// A seed or an offset: the caller's integer, or where it lies.
std::uint64_t scalar_of(const OperandView& view) {
  return static_cast<std::uint64_t>(view.data ? *static_cast<const std::int64_t*>(view.data)
                                              : view.value);
}

// The draws of elements from `index` on; four of them come from one value of the counter.
template <class C>
void fill_draws(host::Stretch<C>& s, std::int64_t index, std::int64_t count, std::uint64_t seed,
                std::uint64_t offset) {
  for (std::int64_t i = 0; i < count;) {
    const auto at = static_cast<std::uint64_t>(index + i);
    const auto words = math::philox(seed, offset + at / 4);
    for (std::uint64_t j = at % 4; j < 4 && i < count; ++j, ++i)
      s.draw[i] = math::unit_draw<C>(words.word[j]);
  }
}

template <class T, bool kStochastic>
Status launch(const State& state, const Operands& operands, Workspace, const Stream& stream) {
  using C = Compute<T>;
  const Fields& f = state.as<Fields>();
  const auto recipe = recipe_of<C>(f);
  const auto& loops = host::affine_loops<T>();
  const T* input = static_cast<const T*>(operands[kInput].data);
  T* output = static_cast<T*>(operands[kOutput].data);
  const std::uint64_t seed = kStochastic ? scalar_of(operands[kSeed]) : 0;
  const std::uint64_t offset = kStochastic ? scalar_of(operands[kOffset]) : 0;
  const bool asymmetric = f.mode == Mode::Asymmetric;
  const host::GivenOperands given = {operands[kScale].data,
                                     asymmetric ? operands[kZeroPoint].data : nullptr,
                                     f.scale_dtype, f.zero_point_dtype};
  const std::array<ElementOperand, 5> layout = {ElementOperand{&operands[kInput]},
                                                {&operands[kOutput]},
                                                {},
                                                {&operands[kScale]},
                                                {asymmetric ? &operands[kZeroPoint] : nullptr}};
  host::for_each_stretch<C>(
      stream.threads, f.shape, f.scope, layout, given, recipe,
      [&](host::Stretch<C>& s, const host::StretchPlace& place, std::int64_t count) {
        loops.widen(input + place.at.at[0], count, s.value);
        if constexpr (kStochastic) fill_draws(s, place.index, count, seed, offset);
        loops.fake(s, count, recipe, kStochastic);
        loops.narrow(s.value, count, output + place.at.at[1]);
      });
  return Status::success();
}

template <DType kType, Rounding kRounding>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  if (f.dynamic) return Reason::refuse(ReasonKind::Feature, "computes given parameters only");
  Reason reason = expect(ReasonKind::DType, "input_dtype", kType, f.input_dtype);
  return reason.accepted() ? expect(ReasonKind::Feature, "rounding", kRounding, f.rounding)
                           : reason;
}

constexpr std::string_view method_of(Rounding rounding) {
  return rounding == Rounding::Stochastic ? "stochastic" : "elements";
}

template <DType kType, Rounding kRounding>
struct SkuParts {
  static constexpr std::array<std::string_view, 4> kParts = {
      "fake_quantize/host/", method_of(kRounding), "/", short_name(kType)};
};

template <DType kType, Rounding kRounding>
constexpr Kernel row() {
  constexpr bool kWide = kType == DType::Float64;
  return {
      .sku = JoinedText<SkuParts<kType, kRounding>>::view(),
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = kWide ? DType::Float64 : DType::Float32,
                    .rounding = kRounding,
                    .max_ulp = 0,
                    .batch_invariant = true,
                    .basis = std::string_view("element by element; IEEE division; exact integer "
                                              "sums; draws by seed and element index alone")},
      .rejects = rejects<kType, kRounding>,
      .workspace = host::no_workspace,
      .prepare = host::keep_fields<Fields>,
      .launch = launch<Stored<kType>, kRounding == Rounding::Stochastic>,
  };
}

template <Rounding kRounding>
constexpr std::array<Kernel, 4> rows_of() {
  return {row<DType::Float16, kRounding>(), row<DType::BFloat16, kRounding>(),
          row<DType::Float32, kRounding>(), row<DType::Float64, kRounding>()};
}

constexpr auto kRows = joined(rows_of<Rounding::NearestEven>(), rows_of<Rounding::Stochastic>());

}  // namespace

extern const std::span<const Kernel> kHostRows;
const std::span<const Kernel> kHostRows = kRows;

}  // namespace planq::fake_quantize
