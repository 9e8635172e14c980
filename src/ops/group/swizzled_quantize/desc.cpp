#include "ops/group/swizzled_quantize/desc.h"

#include <string>

#include "core/rows.h"
#include "ops/group/checks.h"

namespace planq::swizzled_quantize {

namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 20;  // of a count, so that products are exact

Fault count(std::string_view field, std::int64_t value) {
  if (value >= 1 && value <= kMost) return {};
  return {std::string(field), "expected 1 to 2^20, got " + std::to_string(value)};
}

// Groups that move share no byte and no run with others.
Fault divisible(const Fields& f) {
  const Grouping grouping = grouping_of(f);
  if (grouping.elements % f.group_size != 0)
    return {"group_size", std::to_string(grouping.elements) + " elements are no whole groups of " +
                              std::to_string(f.group_size)};
  if (grouping.is_four_bit() && f.group_size % 2 != 0)
    return {"group_size", "groups of int4 have an even size, got " + std::to_string(f.group_size)};
  if (grouping.groups % runs_of(f) == 0) return {};
  return {"group_size", std::to_string(grouping.groups) + " groups are not divisible by nodes x " +
                            "devices_per_node x pipelining = " + std::to_string(runs_of(f))};
}

Fault feedback(Fields& f) {
  constexpr DType kSums[] = {DType::Float32, DType::Float16};
  if (Fault fault = checks::dtype("sum_dtype", f.sum_dtype, kSums); !fault.ok()) return fault;
  if (Fault fault = checks::error_feedback(f.error_feedback, f.error_dtype); !fault.ok())
    return fault;
  if (has_feedback(f) || f.sum_dtype == DType::Float32) return {};
  return {"sum_dtype", std::string(name_of(f.sum_dtype)) + " goes with error_feedback"};
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("shape", f.shape, 1); !fault.ok()) return fault;
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, checks::kGroupElements);
      !fault.ok())
    return fault;
  if (Fault fault =
          checks::group_convention(Convention::DeepSpeed, f.mode, "output_dtype", f.output_dtype);
      !fault.ok())
    return fault;
  if (Fault fault = checks::group_size(f.group_size); !fault.ok()) return fault;
  if (Fault fault = count("nodes", f.nodes); !fault.ok()) return fault;
  if (Fault fault = count("devices_per_node", f.devices_per_node); !fault.ok()) return fault;
  if (Fault fault = count("pipelining", f.pipelining); !fault.ok()) return fault;
  if (Fault fault = feedback(f); !fault.ok()) return fault;
  return divisible(f);
}

Reason rows_of(const Descriptor&) {
  return rows::share("the place of a group depends on how many there are");
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"swizzled_quantize", kFields, kOperands, resolve, rows_of, kTables};

}  // namespace planq::swizzled_quantize
