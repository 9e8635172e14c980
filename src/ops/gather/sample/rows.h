// The rows of sample, for both backends: where their elements, settings and results lie.
#pragma once

#include <cstdint>

#include "core/index_space.h"
#include "ops/gather/sample/desc.h"
#include "ops/gather/sample/weight.h"

namespace planq::sample {

struct Rows {
  static constexpr int kCount = kMinP + 1;  // of operands that rows have a part in

  IndexSpaceOf<kCount> space;
  std::int64_t length;
  gather::Indices output;
  const void* data[kCount];  // null: the caller has left it out

  explicit Rows(const Call& call)
      : length(call.fields<Fields>().shape.last()),
        output(call.operands[kOutput], call.fields<Fields>().output_dtype) {
    const Shape& shape = call.fields<Fields>().shape;
    for (int i = 0; i < kCount; ++i) data[i] = call.operands[i].data;
    for (int axis = 0; axis + 1 < shape.rank; ++axis) {
      AxisOf<kCount> own;
      own.extent = shape[axis];
      for (int i = 0; i < kCount; ++i)
        if (data[i]) own.stride[i] = call.operands[i].strides[static_cast<std::size_t>(axis)];
      space.append(own);
    }
    space.merge();
  }
  std::int64_t size() const { return space.size(); }

  PLANQ_HD Settings settings(const OffsetsOf<kCount>& at) const {
    return {read(kTemperature, at, 1.0f),
            read(kTopP, at, 1.0f),
            read(kMinP, at, 0.0f),
            read(kTopK, at, std::int32_t{0}),
            static_cast<std::uint64_t>(read(kSeed, at, std::int64_t{0})),
            static_cast<std::uint64_t>(read(kPosition, at, std::int64_t{0}))};
  }

 private:
  template <class T>
  PLANQ_HD T read(int operand, const OffsetsOf<kCount>& at, T otherwise) const {
    const auto* const from = static_cast<const T*>(data[operand]);
    return from ? from[at.at[operand]] : otherwise;
  }
};

}  // namespace planq::sample
