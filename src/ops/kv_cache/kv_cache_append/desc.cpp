#include "ops/kv_cache/kv_cache_append/desc.h"

#include <span>
#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::kv_cache_append {

namespace {

constexpr DType kInputs[] = {DType::Float16, DType::BFloat16, DType::Float32};

Fault not_negative(std::string_view field, std::int64_t count) {
  if (count >= 0) return {};
  return {std::string(field), "expected 0 or more, got " + std::to_string(count)};
}

// Slots are numbered in int64, and the cache is a tensor like others.
Fault check_pages(const Fields& f) {
  if (Fault fault = not_negative("pages", f.pages); !fault.ok()) return fault;
  if (f.page_size < 1)
    return {"page_size", "expected 1 or more, got " + std::to_string(f.page_size)};
  for (const std::int64_t columns : {f.key_shape.last(), f.value_dim})
    if (Fault fault =
            checks::shape("pages", {4, {f.pages, f.page_size, f.key_shape[1], columns}}, 4);
        !fault.ok())
      return fault;
  return checks::shape("pages", {2, {f.pages, f.page_size}}, 2);
}

Fault resolve_types(Fields& f) {
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kInputs); !fault.ok()) return fault;
  if (f.cache_dtype == DType::Unset) f.cache_dtype = f.input_dtype;
  // Numbers of 32 bits may be rounded to 16.
  const DType caches[] = {f.input_dtype,     DType::Int8,    DType::Float8E4M3FN,
                          DType::Float8E5M2, DType::Float16, DType::BFloat16};
  const std::size_t count = f.input_dtype == DType::Float32 ? 6 : 4;
  if (Fault fault = checks::dtype("cache_dtype", f.cache_dtype, std::span(caches, count));
      !fault.ok())
    return fault;
  const bool has_scales = f.scale_scope != CacheScale::Unset;
  if (is_code(f.cache_dtype)) {
    if (!has_scales) f.scale_scope = CacheScale::Tensor;
  } else if (has_scales) {
    return {"scale_scope",
            "only caches of codes have scales, got " + std::string(name_of(f.cache_dtype))};
  }
  return {};
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("key_shape", f.key_shape, 3); !fault.ok()) return fault;
  if (f.key_shape.rank != 3)
    return {"key_shape",
            "expected (tokens, heads, columns), got " + std::to_string(f.key_shape.rank) + " axes"};
  if (f.value_dim < 0)
    return {"value_dim", "expected 1 or more, or None, got " + std::to_string(f.value_dim)};
  const Shape value = {3, {f.key_shape[0], f.key_shape[1], f.value_dim}};
  if (Fault fault = checks::shape("value_dim", value, 3); !fault.ok()) return fault;
  if (Fault fault = check_pages(f); !fault.ok()) return fault;
  return resolve_types(f);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"kv_cache_append", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::kv_cache_append
