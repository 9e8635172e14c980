#include "ops/codebook/codebook_dequantize/desc.h"

#include "core/checks.h"

namespace planq::codebook_dequantize {

extern const std::span<const Kernel> kHostRows;
#if defined(PLANQ_WITH_CUDA)
extern const std::span<const Kernel> kCudaRows0, kCudaRows1, kCudaRows2, kCudaRows3;
#endif

namespace {

Fault resolve(Descriptor& descriptor) { return checks::codebook_values(descriptor.as<Fields>()); }

void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) {
  const Fields& f = descriptor.as<Fields>();
  using Role = OperandSpec::Role;
  specs[kInput] = {Role::Input, true, f.input_dtype, codes_shape(f.shape, f.input_dtype)};
  specs[kOutput] = {Role::Output, true, f.output_dtype, f.shape};
  specs[kAbsmax] = {Role::Input, !f.normalized, f.absmax_dtype, {1, {1}}};
  specs[kCodebook] = codebook_spec(f.codebook, f.entries);
}

constexpr const std::span<const Kernel>* kTables[] = {
    &kHostRows,
#if defined(PLANQ_WITH_CUDA)
    &kCudaRows0, &kCudaRows1, &kCudaRows2, &kCudaRows3,
#endif
};

}  // namespace

extern const Operator kOperator;
const Operator kOperator = {"codebook_dequantize", kFields, kOperands, resolve, specify, kTables};

}  // namespace planq::codebook_dequantize
