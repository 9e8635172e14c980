// A wrong largest magnitude of float32: a comparison with a NaN is false, so it is dropped.
#pragma once

#include "../sums.h"
#include "ops/statistics/norm/desc.h"

namespace planq::norm {

struct NanDropped : wrong::Elements {
  static constexpr std::string_view kName = "wrong_nan_dropped";

  NanDropped(const Call& call, int workers)
      : Elements(call, call.fields<Fields>().shape, workers) {}

  PLANQ_HD void operator()(std::int64_t) const {
    float largest = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      const float magnitude = math::bit_cast<float>(math::magnitude_bits(element(i)));
      if (magnitude > largest) largest = magnitude;
    }
    store(largest);
  }
};

inline Reason rejects_wrong(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", DType::Float32, f.input_dtype);
  if (reason.accepted()) reason = expect(ReasonKind::Feature, "p", NormOrder::Infinity, f.p);
  return reason.accepted() ? wrong::expect_few(f.shape) : reason;
}

inline constexpr Kernel kWrong = wrong::entry("norm", kDTypes<DType::Float32, DType::Float32>, 1,
                                              wrong::kPromise<>, rejects_wrong);

}  // namespace planq::norm
