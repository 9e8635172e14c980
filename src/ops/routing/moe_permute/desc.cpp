#include "ops/routing/moe_permute/desc.h"

#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::moe_permute {

namespace {

constexpr DType kMoved[] = {DType::Float16, DType::BFloat16, DType::Float32, DType::Int8,
                            DType::Float8E4M3FN};
constexpr DType kScales[] = {DType::Float32};
constexpr std::int64_t kMostExperts = 1 << 16;

Fault check_count(const char* field, std::int64_t count, std::int64_t most) {
  if (count >= 1 && count <= most) return {};
  return {field, "expected 1 to " + std::to_string(most) + ", got " + std::to_string(count)};
}

Fault resolve(Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("input_shape", f.input_shape, 2); !fault.ok()) return fault;
  if (f.input_shape.rank != 2)
    return {"input_shape",
            "expected (tokens, width), got " + std::to_string(f.input_shape.rank) + " axes"};
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kMoved); !fault.ok()) return fault;
  if (Fault fault = check_count("top_k", f.top_k, routing::kMostPairs); !fault.ok()) return fault;
  if (Fault fault = routing::check_pairs("top_k", f.input_shape[0], f.top_k); !fault.ok())
    return fault;
  if (Fault fault = check_count("experts", f.experts, kMostExperts); !fault.ok()) return fault;
  if (f.scale_dtype == DType::Unset) return {};
  return checks::dtype("scale_dtype", f.scale_dtype, kScales);
}

// Where a row goes is decided by all tokens before it, which bits it has by none.
Reason share_places(const Descriptor&) {
  return rows::share("where a row goes follows from the experts of all tokens");
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"moe_permute", kFields, kOperands, resolve, share_places, kTables};

}  // namespace planq::moe_permute
