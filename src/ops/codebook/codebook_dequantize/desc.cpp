#include "ops/codebook/codebook_dequantize/desc.h"

#include "core/rows.h"
#include "ops/codebook/checks.h"

namespace planq::codebook_dequantize {

namespace {

Fault resolve(Descriptor& descriptor) { return checks::codebook_values(descriptor.as<Fields>()); }

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"codebook_dequantize", kFields, kOperands, resolve,
                            rows::apart,           kTables};

}  // namespace planq::codebook_dequantize
