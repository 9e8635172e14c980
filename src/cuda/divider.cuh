// Division by a number that is known at launch, as a multiplication and a shift; and, made of it,
// an index space like that of core/index_space.h for 32-bit indices.
#pragma once

#include <bit>
#include <cstdint>

#include "core/index_space.h"

namespace planq::cuda {

// Division of 0 <= n < 2^31 by a constant that is known at launch.
struct Divider {
  std::uint32_t divisor = 1, multiplier = 1;
  std::int32_t shift = 0;

  Divider() = default;
  explicit Divider(std::uint32_t d) : divisor(d), shift(std::bit_width(d - 1)) {
    multiplier = static_cast<std::uint32_t>(
        ((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - d)) / d + 1);
  }
  __device__ __forceinline__ std::uint32_t quotient(std::uint32_t n) const {
    return (__umulhi(n, multiplier) + n) >> shift;
  }
};

inline constexpr std::int64_t kMaxIndex = 0x7FFFFFFF;

// Division of numbers of 0 to `count` * d - 1 by d, whatever they are: by a Divider where it can.
class WideDivider {
 public:
  WideDivider(std::int64_t count, std::int64_t d)
      : divisor_(d), is_small_(d > 0 && count <= kMaxIndex / d) {
    if (is_small_) divider_ = Divider(static_cast<std::uint32_t>(d));
  }
  __device__ __forceinline__ std::int64_t quotient(std::int64_t n) const {
    return is_small_ ? divider_.quotient(static_cast<std::uint32_t>(n)) : n / divisor_;
  }
  __device__ __forceinline__ std::int64_t divisor() const { return divisor_; }

 private:
  Divider divider_;
  std::int64_t divisor_;
  bool is_small_;
};

// A merged IndexSpace with fewer than 2^31 indices, whose axes all have the divisor 1.
template <int kOperands>
struct IndexSpace32Of {
  struct Axis {
    Divider extent;
    std::int64_t stride[kOperands];
  };
  std::int32_t rank = 0;
  Axis axes[kMaxRank];

  IndexSpace32Of() = default;
  explicit IndexSpace32Of(const IndexSpaceOf<kOperands>& space) : rank(space.rank) {
    for (int i = 0; i < rank; ++i) {
      if (i > 0) axes[i].extent = Divider(static_cast<std::uint32_t>(space.axes[i].extent));
      for (int operand = 0; operand < kOperands; ++operand)
        axes[i].stride[operand] = space.axes[i].stride[operand];
    }
  }

  __device__ __forceinline__ OffsetsOf<kOperands> offsets(std::uint32_t index) const {
    OffsetsOf<kOperands> result;
    const bool single = rank == 1;
#pragma unroll
    for (int i = 0; i < kOperands; ++i) result.at[i] = single ? index * axes[0].stride[i] : 0;
    if (rank <= 1) return result;
#pragma unroll 1
    for (int i = rank - 1; i >= 0; --i) {
      const std::uint32_t rest = i > 0 ? axes[i].extent.quotient(index) : 0;
      const std::int64_t position = index - rest * axes[i].extent.divisor;
#pragma unroll
      for (int operand = 0; operand < kOperands; ++operand)
        result.at[operand] += position * axes[i].stride[operand];
      index = rest;
    }
    return result;
  }

  // The same with less waiting where there are one or two axes, for kernels that begin with it.
  __device__ __forceinline__ OffsetsOf<kOperands> offsets_of_few(std::uint32_t index) const {
    if (rank > 2) return offsets(index);
    const std::uint32_t rest = rank == 2 ? axes[1].extent.quotient(index) : 0;
    const std::uint32_t position = index - rest * axes[1].extent.divisor;
    const Axis& inner = axes[rank == 2 ? 1 : 0];
    OffsetsOf<kOperands> result;
#pragma unroll
    for (int i = 0; i < kOperands; ++i)
      result.at[i] = (rank == 2 ? rest * axes[0].stride[i] : 0) + position * inner.stride[i];
    return result;
  }
};
using IndexSpace32 = IndexSpace32Of<kIndexSpaceOperands>;

}  // namespace planq::cuda
