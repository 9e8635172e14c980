#include "ops/attention/attention/desc.h"

#include <cmath>
#include <limits>
#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::attention {

namespace {

constexpr DType kInputs[] = {DType::Float16, DType::BFloat16};
constexpr DType kOutputs[] = {DType::Float16, DType::BFloat16, DType::Float32};
// Tensor cores take columns 16 at a time.
constexpr std::int64_t kColumnsTogether = 16;

Fault columns_of(std::string_view field, std::int64_t columns, std::int64_t most) {
  if (columns >= 1 && columns <= most && columns % kColumnsTogether == 0) return {};
  return {std::string(field), "expected a multiple of " + std::to_string(kColumnsTogether) +
                                  " columns up to " + std::to_string(most) + ", got " +
                                  std::to_string(columns)};
}
// Starts and lengths are int32.
Fault counted(std::string_view field, std::int64_t count) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (count >= 1 && count <= kMost) return {};
  return {std::string(field),
          "expected 1 to " + std::to_string(kMost) + ", got " + std::to_string(count)};
}

Fault check_heads(const Descriptor& descriptor) {
  const Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("query_shape", f.query_shape, 3); !fault.ok()) return fault;
  if (f.query_shape.rank != 3)
    return {"query_shape", "expected (tokens, heads, columns), got " +
                               std::to_string(f.query_shape.rank) + " axes"};
  if (descriptor.dim_at(f.query_shape.dims[1]))
    return {"query_shape", "expected a number of heads, got a Dim: only tokens may be one"};
  if (f.key_heads < 1)
    return {"key_heads", "expected 1 or more, got " + std::to_string(f.key_heads)};
  const std::int64_t heads = f.query_shape[1];
  if (heads < 1 || heads % f.key_heads != 0)
    return {"query_shape", "expected a multiple of " + std::to_string(f.key_heads) +
                               " key heads, got " + std::to_string(heads) + " heads"};
  return columns_of("query_shape", f.query_shape.last(), kMostKeyColumns);
}

// The cache is a tensor like others.
Fault check_cache(Fields& f) {
  if (Fault fault = counted("batch", f.batch); !fault.ok()) return fault;
  if (Fault fault = counted("max_query", f.max_query); !fault.ok()) return fault;
  if (Fault fault = counted("max_key", f.max_key); !fault.ok()) return fault;
  if (f.window > 0)
    if (Fault fault = counted("window", f.window); !fault.ok()) return fault;
  if (f.pages > 0 && f.page_size == 0)
    return {"page_size", "expected a number, since the cache has pages, got None"};
  const bool paged = f.page_size > 0;
  if (paged && f.pages == 0) f.pages = f.batch * ((f.max_key - 1) / f.page_size + 1);
  const std::int64_t pages = paged ? f.pages : f.batch, places = paged ? f.page_size : f.max_key;
  for (const std::int64_t columns : {f.query_shape.last(), f.value_dim})
    if (Fault fault = checks::shape(paged ? "pages" : "max_key",
                                    {4, {pages, places, f.key_heads, columns}}, 4);
        !fault.ok())
      return fault;
  return {};
}

Fault resolve_types(Fields& f) {
  if (Fault fault = checks::dtype("input_dtype", f.input_dtype, kInputs); !fault.ok()) return fault;
  if (f.cache_dtype == DType::Unset) f.cache_dtype = f.input_dtype;
  const DType caches[] = {f.input_dtype, DType::Int8, DType::Float8E4M3FN, DType::Float8E5M2};
  if (Fault fault = checks::dtype("cache_dtype", f.cache_dtype, caches); !fault.ok()) return fault;
  if (f.output_dtype == DType::Unset) f.output_dtype = f.input_dtype;
  if (Fault fault = checks::dtype("output_dtype", f.output_dtype, kOutputs); !fault.ok())
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

// float32 has to hold the cap and its inverse.
Fault check_cap(double cap) {
  if (std::isnan(cap)) return {};
  const float own = static_cast<float>(cap);
  if (own > 0 && std::isfinite(own) && std::isfinite(1 / own)) return {};
  return {"soft_cap", "expected a positive number of float32 with an inverse, or None, got " +
                          checks::number(cap)};
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = check_heads(descriptor); !fault.ok()) return fault;
  if (f.value_dim == 0) f.value_dim = f.query_shape.last();
  if (Fault fault = columns_of("value_dim", f.value_dim, kMostValueColumns); !fault.ok())
    return fault;
  if (Fault fault = check_cache(f); !fault.ok()) return fault;
  if (Fault fault = resolve_types(f); !fault.ok()) return fault;
  return check_cap(f.soft_cap);
}

}  // namespace

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {"attention", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::attention
