#include "ops/optimizer/optimizer_step/desc.h"

#include <limits>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::optimizer_step {

namespace {

using enum OptimizerAlgorithm;

constexpr DType kElements[] = {DType::Float16, DType::BFloat16, DType::Float32};
constexpr std::int64_t kFewestOfBlock = 64, kMostOfBlock = 4096;

Fault check_state(const Fields& f) {
  const std::int64_t size = f.block_size;
  if (f.state_format == StateFormat::Blockwise8) {
    if (size < kFewestOfBlock || size > kMostOfBlock || (size & (size - 1)) != 0)
      return {"block_size", "expected a power of two from 64 to 4096, got " + std::to_string(size)};
  } else if (size != Fields{}.block_size) {
    return {"block_size", "only the states of blockwise8 have blocks"};
  }
  return {};
}

// Fills a trust ratio that was left out.
Fault resolve_trust(Fields& f) {
  const bool layered = f.algorithm == Lamb || f.algorithm == Lars;
  if (f.trust_ratio == TrustRatio::Default)
    f.trust_ratio = layered ? TrustRatio::Layerwise : TrustRatio::None;
  if (layered && f.trust_ratio == TrustRatio::None)
    return {"trust_ratio", "without one, lamb is adam and lars is momentum: ask for these"};
  if (f.trust_ratio != TrustRatio::Layerwise) return {};
  if (!layered) return {"trust_ratio", "only lamb and lars have one that is LAYERWISE"};
  if (f.weight_decay_mode != WeightDecayMode::Decoupled)
    return {"weight_decay_mode", "LAYERWISE has weight decay in the update; leave it out"};
  return {};
}

Fault check_options(const Fields& f) {
  if (f.nesterov && f.algorithm != Momentum && f.algorithm != Lars)
    return {"nesterov", "only momentum and lars have it"};
  if (f.centered && f.algorithm != RmsProp) return {"centered", "only rmsprop has it"};
  if (Fault fault = checks::rounding(f.rounding); !fault.ok()) return fault;
  if (f.rounding == Rounding::Stochastic && f.parameter_dtype == DType::Float32)
    return {"rounding", "float32 parameters are not rounded; expected NEAREST_EVEN"};
  return {};
}

// Ids that every list has are as good as none.
Fault resolve_ids(Fields& f) {
  if (f.tensor_ids.count == 0) return {};
  if (f.tensor_ids.count != f.shapes.count)
    return {"tensor_ids", "expected one for each of " + std::to_string(f.shapes.count) +
                              " tensors, got " + std::to_string(f.tensor_ids.count)};
  bool counted = true;
  for (std::int64_t i = 0; i < f.tensor_ids.count; ++i) {
    const std::int64_t id = f.tensor_ids.data[i];
    if (id < 0 || id > std::numeric_limits<std::uint32_t>::max())
      return {"tensor_ids", "expected 0 to 2^32 - 1, got " + std::to_string(id)};
    counted = counted && id == i;
  }
  if (counted) f.tensor_ids = {};
  return {};
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  for (const Shape& shape : f.shapes)
    if (Fault fault = checks::shape("shapes", shape, 0); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("parameter_dtype", f.parameter_dtype, kElements); !fault.ok())
    return fault;
  if (Fault fault = checks::dtype("gradient_dtype", f.gradient_dtype, kElements); !fault.ok())
    return fault;
  if (Fault fault = check_state(f); !fault.ok()) return fault;
  if (Fault fault = resolve_trust(f); !fault.ok()) return fault;
  if (Fault fault = check_options(f); !fault.ok()) return fault;
  return resolve_ids(f);
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (f.state_format != StateFormat::Float32)
    return rows::share("maxima of states are of more than a row");
  if (f.trust_ratio != TrustRatio::None) return rows::share("norms are of whole tensors");
  if (f.nonfinite == NonFiniteGradient::SkipStep)
    return rows::share("one gradient that is not finite skips the step of all");
  if (f.rounding == Rounding::Stochastic)
    return rows::share("draws go by an element's index in its tensor");
  return Reason::accept();
}

void promise(const Descriptor& descriptor, Guarantee& guarantee) {
  guarantee.rounding.value = descriptor.as<Fields>().rounding;
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"optimizer_step", kFields, kOperands, resolve,
                            rows_of,          kTables, promise};

}  // namespace planq::optimizer_step
