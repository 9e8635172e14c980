#include "ops/group/dequantize_reduce/desc.h"

#include <string>

#include "core/rows.h"
#include "ops/group/checks.h"

namespace planq::dequantize_reduce {

namespace {

Fault resolve_output(Fields& f) {
  if (makes_codes(f)) {
    if (f.output_group_size == 0) f.output_group_size = f.group_size;
    return {};
  }
  for (const DType elements : checks::kGroupElements) {
    if (f.output_dtype != elements) continue;
    if (f.output_group_size == 0) return {};
    return {"output_group_size",
            "goes with codes, and output_dtype is " + std::string(name_of(f.output_dtype))};
  }
  return {"output_dtype", "expected " + std::string(name_of(f.input_dtype)) +
                              ", float16, bfloat16 or float32, got " +
                              std::string(name_of(f.output_dtype))};
}

Fault feedback(Fields& f) {
  if (Fault fault = checks::error_feedback(f.error_feedback, f.error_dtype); !fault.ok())
    return fault;
  if (!has_feedback(f) || makes_codes(f)) return {};
  return {"error_feedback",
          "goes with codes, and output_dtype is " + std::string(name_of(f.output_dtype))};
}

Fault resolve(Descriptor& descriptor) {
  constexpr DType kSums[] = {DType::Float32, DType::Float16};
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (f.ranks < 1 || f.ranks > kMostRanks)
    return {"ranks", "expected 1 to 64, got " + std::to_string(f.ranks)};
  if (Fault fault =
          checks::group_convention(Convention::DeepSpeed, f.mode, "input_dtype", f.input_dtype);
      !fault.ok())
    return fault;
  if (Fault fault = checks::group_size(f.group_size); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("sum_dtype", f.sum_dtype, kSums); !fault.ok()) return fault;
  if (Fault fault = resolve_output(f); !fault.ok()) return fault;
  return feedback(f);
}

Reason rows_of(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (!makes_codes(f)) return Reason::accept();
  return rows::any_of(rows::of_bytes(f.shape, f.output_dtype),
                      rows::of_pieces(f.shape, f.output_group_size));
}

// Sums that are rounded at every step.
void promise(const Descriptor& descriptor, Guarantee& guarantee) {
  guarantee.accumulator.value = descriptor.as<Fields>().sum_dtype;
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "dequantize_reduce", kFields, kOperands, resolve, rows_of, kTables, promise};

}  // namespace planq::dequantize_reduce
