// linear_4bit on the host. Weights are given back slice by slice on the way.
#include "ops/linear/float_kernels_host.h"
#include "ops/linear/linear_4bit/desc.h"

namespace planq::linear_4bit {
namespace {

linear::WeightCodes codes_of(const Fields& f, const Operands& operands) {
  if (!f.has_blocks())
    return linear::integer_codes(f, operands[kWeight], operands[kWeightScale],
                                 operands[kWeightZeroPoint]);
  linear::WeightCodes codes = linear::stored_codes(f, operands[kWeight]);
  // Flat codes have no rows of their own.
  if (f.weight_layout == WeightLayout::RowMajor) codes.row_stride = f.weight_shape[1];
  codes.segment_size = f.block_size;
  codes.codebook = f.codebook == Codebook::Given
                       ? static_cast<const float*>(operands[kCodebook].data)
                       : math::nibble_table(f.codebook).value;
  codes.statistics = {
      operands[kAbsmax].data,       DType::Float32,
      f.nested_block_size,          operands[kNestedAbsmax].data,
      operands[kNestedOffset].data, static_cast<const float*>(operands[kNestedCodebook].data)};
  return codes;
}

struct Kernels {
  using Fields = linear_4bit::Fields;
  static constexpr std::string_view kName = "linear_4bit";

  static Status compute(const Call& call, const Stream& stream) {
    const Fields& f = call.fields<Fields>();
    const Operands& operands = call.operands;
    const linear::WeightCodes codes = codes_of(f, operands);
    const linear::Product product = linear::make_product(
        f.input(), f.weight(),
        {.input = &operands[kInput],
         .weight = &operands[kWeight],
         .output = &operands[kOutput],
         .bias = f.bias_dtype == DType::Unset ? nullptr : &operands[kBias],
         .residual = f.residual_dtype == DType::Unset ? nullptr : &operands[kResidual]},
        &codes);
    host::multiply_floats(product, f.accumulation, stream.threads);
    return Status::success();
  }
};

constexpr auto kKernels = joined(
    host::float_kernels<Kernels, Accumulation::TensorSm90, DType::Float16, DType::BFloat16>(),
    host::float_kernels<Kernels, Accumulation::Lanes, DType::Float16, DType::BFloat16,
                        DType::Float32>());

}  // namespace
}  // namespace planq::linear_4bit

PLANQ_KERNELS(linear_4bit, host, kKernels);
