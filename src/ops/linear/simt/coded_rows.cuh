// Rows of weights that are codes, a number at a time, and their sums in the order of
// Accumulation::GroupsSm90, for the SIMT kernels.
#pragma once

#include "ops/linear/simt/gemm.cuh"
#include "ops/linear/weight_only/pair_table.cuh"

namespace planq::linear {

// A row of the numbers that codes stand for, with their scales or without.
template <bool kScaled>
class RowOfCodes {
 public:
  int smallest;

  __device__ RowOfCodes(const CodesArgs& args, std::int64_t row)
      : smallest(args.codes.values == DType::Float16 ? kSmallestOfHalf : kSmallestOfBfloat16),
        args_(&args),
        row_(row) {}

  __device__ float operator[](std::int64_t index) const {
    const std::int64_t term = first_ + index;
    return kScaled ? number_at(args_->codes, args_->codebook(), row_, term)
                   : unscaled_at(args_->codes, args_->codebook(), row_, term);
  }
  __device__ RowOfCodes from(std::int64_t index) const {
    RowOfCodes row = *this;
    row.first_ += index;
    return row;
  }

 private:
  const CodesArgs* args_;
  std::int64_t row_, first_ = 0;
};

// The sum of one output in the order of GroupsSm90, by the column's row of codes.
template <class T>
__device__ float run_sum(const CodesArgs& args, std::int64_t terms, const NumberRow<T>& input,
                         std::int64_t column) {
  const auto scale_of = [&](std::int64_t term) { return scale_at(args.codes, column, term); };
  return math::grouped_sum<math::TensorCore16>(input, RowOfCodes<false>(args, column), terms,
                                               run_terms(args.codes), scale_of);
}

}  // namespace planq::linear
