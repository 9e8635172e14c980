#include "ops/kv_cache/rotary_kv_cache_append/desc.h"

#include <span>
#include <string>

#include "core/checks.h"
#include "core/rows.h"

namespace planq::rotary_kv_cache_append {

namespace {

// Turned queries are as they are; numbers of 32 bits may be rounded to 16.
Fault check_output(const Fields& f) {
  if (f.is_in_place()) return {};
  const DType outputs[] = {f.dtype, DType::Float16, DType::BFloat16};
  const std::size_t count = f.dtype == DType::Float32 ? 3 : 1;
  return checks::dtype("output_dtype", f.output_dtype, std::span(outputs, count));
}

Fault resolve(Descriptor& descriptor) {
  Fields& f = descriptor.as<Fields>();
  if (Fault fault = checks::shape("query_shape", f.query_shape, 3); !fault.ok()) return fault;
  if (descriptor.dim_at(f.query_shape.dims[1]))
    return {"query_shape", "expected a number of heads, got a Dim: only tokens may be one"};
  if (f.key_heads < 1)
    return {"key_heads", "expected 1 or more, got " + std::to_string(f.key_heads)};
  if (f.cache_dtype == DType::Unset) f.cache_dtype = f.dtype;
  if (f.scale_scope == CacheScale::Unset && kv_cache::is_code(f.cache_dtype))
    f.scale_scope = CacheScale::Tensor;
  if (f.rotary_dim == 0) f.rotary_dim = f.query_shape.last();
  // The parts check the rest.
  Fault fault;
  parts_of(descriptor, fault);
  return fault.ok() ? check_output(f) : fault;
}

Descriptor turn(const Descriptor& whole, Fault& fault) {
  const Fields& f = whole.as<Fields>();
  return PartMaker(whole, "rotary_embedding")
      .set_shape("query_shape", "query_shape")
      .set("key_heads", f.key_heads)
      .set("rotary_dim", f.rotary_dim)
      .set("pairs", f.pairs)
      .set("dtype", f.dtype)
      .set("position_dtype", f.position_dtype)
      .set("max_position", f.max_position)
      .set("norm_weight_dtype", f.norm_weight_dtype)
      .make(fault);
}

Descriptor append(const Descriptor& whole, Fault& fault) {
  const Fields& f = whole.as<Fields>();
  return PartMaker(whole, "kv_cache_append")
      .set_shape("key_shape", "query_shape")  // whose tokens may be a Dim
      .set("key_shape", f.key_shape())
      .set("value_dim", f.value_dim)
      .set("pages", f.pages)
      .set("page_size", f.page_size)
      .set("layout", f.layout)
      .set("input_dtype", f.dtype)
      .set("cache_dtype", f.cache_dtype)
      .set("scale_scope", f.scale_scope)
      .make(fault);
}

// A part's fault, with the name that the field has here. What is wrong with the shape of a key was
// found in the query's before, but for the number of its heads.
Fault renamed(Fault fault) {
  if (fault.field == "input_dtype") fault.field = "dtype";
  if (fault.field == "key_shape") fault.field = "key_heads";
  return fault;
}

}  // namespace

std::array<Descriptor, 2> parts_of(const Descriptor& descriptor, Fault& fault) {
  std::array<Descriptor, 2> parts;
  parts[0] = turn(descriptor, fault);
  if (!fault.ok()) return parts;
  parts[1] = append(descriptor, fault);
  fault = renamed(fault);
  return parts;
}

extern const KernelTables kTables;
extern const Operator kOperator;
const Operator kOperator = {
    "rotary_kv_cache_append", kFields, kOperands, resolve, rows::apart, kTables};

}  // namespace planq::rotary_kv_cache_append
