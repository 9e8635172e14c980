// The kernels of fake_quantize by DeepSpeed's convention, for both backends. A backend's kernels
// are a struct with its kBackend, prepare() and workspace(), and for elements of type kElements
// kBind. The kernels themselves are those of the group family.
#pragma once

#include <array>
#include <string_view>

#include "core/registry.h"
#include "core/rejects.h"
#include "core/sku.h"
#include "ops/affine/fake_quantize/desc.h"
#include "ops/group/fake.h"

namespace planq::fake_quantize {

inline math::FakeSpec fake_spec(const Fields& f) { return {f.mode, f.bits, f.eps}; }
inline FakeGroups fake_groups(const Fields& f) { return {f.shape, f.group_size}; }

template <DType kElements, Rounding kRounding>
Reason rejects_but_deepspeed(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kElements, f.input_dtype);
  if (reason.accepted()) reason = expect(ReasonKind::Feature, "rounding", kRounding, f.rounding);
  if (!reason.accepted()) return reason;
  return expect(ReasonKind::Feature, "convention", Convention::DeepSpeed, f.convention);
}

constexpr std::string_view deepspeed_arithmetic(Rounding rounding) {
  if (rounding == Rounding::Stochastic) return "deepspeed_stochastic";
  return rounding == Rounding::NearestAway ? "deepspeed_asymmetric" : "deepspeed";
}

// 2: GCC 13 took subnormal steps for 0.
constexpr std::uint16_t revision_of(bool host, DType elements, Rounding rounding) {
  const bool has_steps = rounding != Rounding::NearestEven && elements != DType::Float16;
  return host && has_steps ? 2 : 1;
}

template <class Backend, DType kElements, Rounding kRounding>
constexpr Kernel deepspeed_kernel() {
  constexpr bool kHost = Backend::kBackend == planq::Backend::Host;
  return {
      .op = "fake_quantize",
      .arithmetic = deepspeed_arithmetic(kRounding),
      .body = "groups",
      .dtypes = kDTypes<kElements, kElements>,
      .revision = revision_of(kHost, kElements, kRounding),
      .backend = Backend::kBackend,
      .arch = kHost ? ArchRange{} : ArchRange{80},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = MathPrecision::F32,
                    .accumulator = DType::Float32,
                    .rounding = kRounding,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = std::string_view("exact maxima and minima; one IEEE rounding for each "
                                              "operation; draws by seed and element index alone")},
      .rejects = rejects_but_deepspeed<kElements, kRounding>,
      .workspace = Backend::workspace,
      .prepare = Backend::template prepare<kElements, kRounding == Rounding::Stochastic>,
      .bind = Backend::template kBind<kElements, kRounding == Rounding::Stochastic>,
  };
}

template <class Backend, DType kElements>
constexpr std::array<Kernel, 3> deepspeed_kernels_of() {
  return {deepspeed_kernel<Backend, kElements, Rounding::NearestEven>(),
          deepspeed_kernel<Backend, kElements, Rounding::NearestAway>(),
          deepspeed_kernel<Backend, kElements, Rounding::Stochastic>()};
}
template <class Backend>
constexpr std::array<Kernel, 9> deepspeed_kernels() {
  return joined(deepspeed_kernels_of<Backend, DType::Float16>(),
                deepspeed_kernels_of<Backend, DType::BFloat16>(),
                deepspeed_kernels_of<Backend, DType::Float32>());
}

}  // namespace planq::fake_quantize
