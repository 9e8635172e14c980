// What a thread of a CUDA kernel keeps of the elements that it looks at, to find the largest one.
// The file that includes this names the type of the elements: see cuda/element.cuh.
#pragma once

#include <cstdint>

#include "cuda/element.cuh"
#include "cuda/key_range.cuh"
#include "ops/gather/order.h"

namespace planq::gather {
namespace {

// The first of the largest elements that a thread has seen. It sees them in ascending order.
class Leader {
 public:
  __device__ __forceinline__ void add(float x, std::uint32_t index) {
    if (!(x <= value_)) take(x, index);
  }
  __device__ __forceinline__ void add(const uint4& vector, std::uint32_t first) {
    constexpr int kEach = cuda::kPerVector<cuda::Element>;
    float each[kEach];
    bool any = false;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      each[i] = cuda::element_of<cuda::Element>(vector, i);
      any |= !(each[i] <= value_);
    }
    if (!any) return;
#pragma unroll
    for (int i = 0; i < kEach; ++i) add(each[i], first + static_cast<std::uint32_t>(i));
  }
  __device__ __forceinline__ std::int64_t key() const {
    if (!is_found_) return kNoKey;
    return key_of(is_nan_ ? kNanOrder : order_of(value_), index_);
  }

 private:
  // Of an element that is larger, the first one, or a NaN.
  __device__ __forceinline__ void take(float x, std::uint32_t index) {
    if (is_nan_) return;
    is_found_ = true;
    is_nan_ = x != x;
    value_ = is_nan_ ? math::bit_cast<float>(0x7F800000u) : x;  // only another NaN comes here then
    index_ = index;
  }

  float value_ = math::canonical_nan<float>();  // nothing is below it
  std::uint32_t index_ = 0;
  bool is_found_ = false, is_nan_ = false;
};

}  // namespace
}  // namespace planq::gather
