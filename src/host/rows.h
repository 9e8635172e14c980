// What the host rows of elementwise operators have in common.
#pragma once

#include <cstdint>

#include "core/registry.h"
#include "host/bind.h"
#include "math/codec.h"

namespace planq::host {

// The stored type of a float dtype.
template <DType kDType>
struct StoredType;
template <>
struct StoredType<DType::Float16> {
  using type = math::Half;
};
template <>
struct StoredType<DType::BFloat16> {
  using type = math::Bfloat16;
};
template <>
struct StoredType<DType::Float32> {
  using type = float;
};
template <>
struct StoredType<DType::Float64> {
  using type = double;
};
template <DType kDType>
using Stored = typename StoredType<kDType>::type;

inline std::size_t no_workspace(const Descriptor&, const Device&) { return 0; }

inline Status nothing_to_prepare(const Descriptor&, const Device&, State&) {
  return Status::success();
}

}  // namespace planq::host
