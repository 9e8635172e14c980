// A scalar operand as kernels of either backend read it: the caller's number, or an element in
// memory, which is read when the kernel runs.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/operands.h"

namespace planq {

struct RealScalar {
  const void* data;
  double value;
  bool is_float32;

  PLANQ_HD double get() const {
    if (!data) return value;
    return is_float32 ? *static_cast<const float*>(data) : *static_cast<const double*>(data);
  }
};
// The same for kernels that take it as a float32.
struct FloatScalar {
  const void* data;
  float value;
  bool is_float32;

  FloatScalar() = default;
  explicit FloatScalar(const RealScalar& from)
      : data(from.data), value(static_cast<float>(from.value)), is_float32(from.is_float32) {}
  PLANQ_HD float get() const {
    if (!data) return value;
    return is_float32 ? *static_cast<const float*>(data)
                      : static_cast<float>(*static_cast<const double*>(data));
  }
};
// `otherwise`: where the caller left it out.
inline RealScalar real_of(const OperandView& view, double otherwise = 0) {
  if (view.dtype == DType::Unset) return {nullptr, otherwise, false};
  if (!view.data) return {nullptr, view.real, false};
  return {view.data, 0, view.dtype == DType::Float32};
}
inline FloatScalar float_of(const OperandView& view, double otherwise = 0) {
  return FloatScalar(real_of(view, otherwise));
}

struct IntegerScalar {
  const std::int64_t* data;
  std::int64_t value;

  PLANQ_HD std::int64_t get() const { return data ? *data : value; }
};
// 0 where the caller left it out.
inline IntegerScalar integer_of(const OperandView& view) {
  return {static_cast<const std::int64_t*>(view.data), view.data ? 0 : view.value};
}

}  // namespace planq
