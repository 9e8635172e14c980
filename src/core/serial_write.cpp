#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "core/selection_text.h"
#include "core/serial.h"

namespace planq {

namespace {

Json name_json(std::string_view name) { return name.empty() ? Json() : Json::text(name); }

// A number without a fraction is an integer; none at all is null.
Json number_json(double number) {
  if (std::isnan(number)) return {};
  if (!std::isfinite(number) || number != std::trunc(number)) return Json::real(number);
  char digits[400];
  std::snprintf(digits, sizeof digits, "%.0f", number);
  return Json::digits(digits);
}

Json dim_json(const DimInfo& dim) {
  Json values = Json::object();
  values.set("dim", Json::text(dim.name.data()));
  values.set("max", Json::integer(dim.max));
  return values;
}

// Each extent, or what dim_at(axis) has in its place.
template <class DimAt>
Json shape_json(const Shape& shape, const DimAt& dim_at) {
  Json extents = Json::list();
  for (int axis = 0; axis < shape.rank; ++axis) {
    const DimInfo* dim = dim_at(axis);
    extents.append(dim ? dim_json(*dim) : Json::integer(shape[axis]));
  }
  return extents;
}
Json known_shape_json(const Shape& shape) {
  return shape_json(shape, [](int) -> const DimInfo* { return nullptr; });
}
Json shapes_json(const ShapeList& list) {
  Json shapes = Json::list();
  for (const Shape& shape : list) shapes.append(known_shape_json(shape));
  return shapes;
}
Json member_shapes_json(const OperandSpec& spec) {
  Json shapes = Json::list();
  for (std::int64_t i = 0; i < spec.shapes.count; ++i)
    shapes.append(known_shape_json(spec.member_shape(i)));
  return shapes;
}

Json integers_json(const IntegerList& list) {
  Json integers = Json::list();
  for (const std::int64_t integer : list) integers.append(Json::integer(integer));
  return integers;
}

Json members_json(const Field& field, const IntegerList& list) {
  Json names = Json::list();
  for (const std::int64_t member : list)
    names.append(Json::text(field.vocabulary.names[static_cast<std::size_t>(member)]));
  return names;
}

// A shape in a descriptor's storage. `descriptor` has its dims; null: there are none.
Json field_shape_json(const Shape& shape, const Descriptor* descriptor) {
  return shape_json(shape, [&](int axis) -> const DimInfo* {
    return descriptor ? descriptor->dim_at(shape.dims[static_cast<std::size_t>(axis)]) : nullptr;
  });
}

Json scope_json(const Scope& scope) {
  Json values = Json::object();
  values.set("kind", Json::text(name_of(scope.kind)));
  if (scope.kind == ScopeKind::Channel || scope.kind == ScopeKind::Group)
    values.set("axis", Json::integer(scope.axis));
  if (scope.kind == ScopeKind::Group) values.set("size", Json::integer(scope.size));
  if (scope.kind == ScopeKind::Block) {
    values.set("rows", Json::integer(scope.rows));
    values.set("columns", Json::integer(scope.size));
  }
  return values;
}

Json field_json(const Field& field, const void* value, const Descriptor* descriptor) {
  switch (field.kind) {
    case FieldKind::Shape:
      return field_shape_json(*static_cast<const Shape*>(value), descriptor);
    case FieldKind::ShapeList:
      return shapes_json(*static_cast<const ShapeList*>(value));
    case FieldKind::IntegerList:
      return integers_json(*static_cast<const IntegerList*>(value));
    case FieldKind::EnumerationList:
      return members_json(field, *static_cast<const IntegerList*>(value));
    case FieldKind::Scope:
      return scope_json(*static_cast<const Scope*>(value));
    case FieldKind::DType:
    case FieldKind::Enumeration:
      return name_json(field.vocabulary.name(*static_cast<const std::uint8_t*>(value)));
    case FieldKind::Number:
      return number_json(*static_cast<const double*>(value));
    case FieldKind::Flag:
      return Json::flag(*static_cast<const bool*>(value));
    case FieldKind::Integer:
      return Json::integer(*static_cast<const std::int64_t*>(value));
    case FieldKind::Count: {
      const std::int64_t count = *static_cast<const std::int64_t*>(value);
      return count == 0 ? Json() : Json::integer(count);
    }
    case FieldKind::Limit: {
      const auto& limit = *static_cast<const std::optional<std::int64_t>*>(value);
      return limit ? Json::integer(*limit) : Json();
    }
    case FieldKind::Text:
      return name_json(*static_cast<const std::string*>(value));
  }
  return {};
}

// `terms`: null where no descriptor says how many there are.
Json bound_json(const ErrorBound& bound, const Json& terms) {
  if (!bound.terms) return {};
  Json values = Json::object();
  values.set("constant", Json::real(bound.constant));
  values.set("per_term", Json::real(bound.per_term));
  values.set("terms", terms);
  values.set("epsilon", Json::real(bound.epsilon));
  values.set("least_factor", Json::real(bound.least_factor));
  values.set("output_rounding", Json::flag(bound.output_rounding));
  return values;
}

Json guarantee_json(const Guarantee& guarantee, const Json& terms) {
  Json values = Json::object();
  values.set("determinism", Json::text(name_of(guarantee.determinism.value)));
  values.set("math", Json::text(name_of(guarantee.math.value)));
  values.set("accumulator", Json::text(name_of(guarantee.accumulator.value)));
  values.set("rounding", Json::text(name_of(guarantee.rounding.value)));
  values.set("max_ulp",
             guarantee.max_ulp == kUlpUnknown ? Json() : Json::integer(guarantee.max_ulp.value));
  values.set("error_bound", bound_json(guarantee.error_bound.value, terms));
  values.set("batch_invariant", Json::flag(guarantee.batch_invariant.value));
  values.set("basis", Json::text(guarantee.basis.value));
  return values;
}

Json constraints_json(const Operator& op, const Kernel& kernel) {
  Json asked = Json::list();
  for (const std::string& text : constraint_texts(op, kernel)) asked.append(Json::text(text));
  return asked;
}

Json dtypes_json(const Kernel& kernel) {
  Json dtypes = Json::list();
  for (const DType dtype : kernel.dtypes) dtypes.append(Json::text(name_of(dtype)));
  return dtypes;
}

Json kernel_json(const Operator& op, const Kernel& kernel) {
  Json values = Json::object();
  values.set("sku", Json::text(kernel.sku));
  values.set("body", Json::text(kernel.body));
  values.set("dtypes", dtypes_json(kernel));
  values.set("revision", Json::integer(kernel.revision));
  values.set("backend", Json::text(name_of(kernel.backend)));
  values.set("min_arch", Json::integer(kernel.arch.first));
  values.set("max_arch", kernel.arch.last >= kLastArch ? Json() : Json::integer(kernel.arch.last));
  values.set("constraints", constraints_json(op, kernel));
  values.set("rank", Json::integer(kernel.rank));
  values.set("guarantee", guarantee_json(kernel.guarantee, Json()));
  return values;
}

Json declared_field_json(const Field& field) {
  Json values = Json::object();
  values.set("name", Json::text(field.name));
  values.set("kind", Json::text(name_of(field.kind)));
  values.set("required", Json::flag(field.is_required));
  values.set("default", field.is_required ? Json() : field_json(field, field.initial, nullptr));
  values.set("source", name_json(field.source));
  Json members = Json::list();
  for (const std::string_view name : field.vocabulary.names)
    if (!name.empty()) members.append(Json::text(name));
  values.set("members", std::move(members));
  return values;
}

Json declared_operand_json(const OperandInfo& operand) {
  const bool always = operand.always(operand.present);
  Json values = Json::object();
  values.set("name", Json::text(operand.name));
  values.set("role", Json::text(name_of(operand.usual_role())));
  values.set("kind", Json::text(name_of(operand.kind)));
  values.set("presence", Json::text(operand.always(operand.optional) ? "optional"
                                    : always                         ? "always"
                                                                     : "by_field"));
  return values;
}

Json operator_json(const Operator& op) {
  Json fields = Json::list(), operands = Json::list(), kernels = Json::list();
  for (const Field& field : op.fields) fields.append(declared_field_json(field));
  for (const OperandInfo& operand : op.operands) operands.append(declared_operand_json(operand));
  for (const Kernel* kernel : ordered_kernels(op)) kernels.append(kernel_json(op, *kernel));
  Json values = Json::object();
  values.set("name", Json::text(op.name));
  values.set("fields", std::move(fields));
  values.set("operands", std::move(operands));
  values.set("kernels", std::move(kernels));
  return values;
}

}  // namespace

Json descriptor_json(const Descriptor& descriptor) {
  Json values = Json::object();
  values.set("op", Json::text(descriptor.op->name));
  for (const Field& field : descriptor.op->fields)
    values.set(field.name,
               field_json(field, descriptor.storage.data() + field.offset, &descriptor));
  return values;
}

Json preference_json(const Preference& preference) {
  const auto* memory = reinterpret_cast<const std::byte*>(&preference);
  Json values = Json::object();
  for (const Field& field : preference_fields())
    values.set(field.name, field_json(field, memory + field.offset, nullptr));
  return values;
}

Json guarantee_json(const Plan& plan) {
  return guarantee_json(guarantee_of(*plan.kernel, plan.descriptor), Json::integer(plan.terms()));
}

Json operands_json(const Descriptor& descriptor) {
  const auto declared = descriptor.op->operands;
  std::vector<OperandSpec> specs(declared.size());
  specify(descriptor, specs);
  Json operands = Json::list();
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const OperandSpec& spec = specs[i];
    if (!spec.present) continue;
    const auto dim_at = [&](int axis) -> const DimInfo* {
      const int dim = spec.dims[static_cast<std::size_t>(axis)];
      return dim < 0 ? nullptr : &descriptor.extras->dims[static_cast<std::size_t>(dim)];
    };
    Json values = Json::object();
    values.set("name", Json::text(declared[i].name));
    values.set("role", Json::text(name_of(spec.role)));
    values.set("dtype", Json::text(name_of(spec.dtype)));
    values.set("shape", shape_json(spec.shape, dim_at));
    values.set("storage", Json::text(name_of(storage_of(spec.dtype))));
    values.set("optional", Json::flag(spec.optional));
    values.set("kind", Json::text(name_of(spec.kind)));
    values.set("shapes", member_shapes_json(spec));
    operands.append(std::move(values));
  }
  return operands;
}

Json plan_json(const Plan& plan) {
  Json values = Json::object();
  values.set("descriptor", descriptor_json(plan.descriptor));
  values.set("preference", preference_json(plan.preference));
  values.set("sku", Json::text(plan.kernel->sku));
  values.set("revision", Json::integer(plan.kernel->revision));
  values.set("guarantee", guarantee_json(plan));
  values.set("build_id", Json::text(build_info().build_id));
  return values;
}

Json selection_json(const Descriptor& descriptor, const Selection& selection) {
  Json candidates = Json::list();
  for (const Candidate& candidate : selection.candidates) {
    const Kernel& kernel = *candidate.kernel;
    Json values = Json::object();
    values.set("sku", Json::text(kernel.sku));
    values.set("body", Json::text(kernel.body));
    values.set("revision", Json::integer(kernel.revision));
    values.set("backend", Json::text(name_of(kernel.backend)));
    values.set("rank", Json::integer(kernel.rank));
    values.set("chosen", Json::flag(candidate.chosen));
    values.set("reason", Json::text(candidate.reason.text()));
    values.set("reason_kind", Json::text(name_of(candidate.reason.kind)));
    values.set("guarantee", guarantee_json(guarantee_of(kernel, descriptor),
                                           Json::integer(terms_of(kernel, descriptor))));
    values.set("workspace", Json::natural(candidate.workspace));
    values.set("constraints", constraints_json(*descriptor.op, kernel));
    values.set("dtypes", dtypes_json(kernel));
    candidates.append(std::move(values));
  }
  Json values = Json::object();
  values.set("candidates", std::move(candidates));
  return values;
}

Json bodies_json(const Operator& op, std::span<const Candidate> bodies) {
  Json listed = Json::list();
  for (const Candidate& body : bodies) {
    Json values = Json::object();
    values.set("name", Json::text(body.kernel->body));
    values.set("chosen", Json::flag(body.chosen));
    values.set("reason", Json::text(body.reason.text()));
    values.set("reason_kind", Json::text(name_of(body.reason.kind)));
    values.set("workspace", Json::natural(body.workspace));
    values.set("constraints", constraints_json(op, *body.kernel));
    listed.append(std::move(values));
  }
  return listed;
}

Json operators_json() {
  Json listed = Json::list();
  for (const Operator* op : operators()) listed.append(operator_json(*op));
  return listed;
}

}  // namespace planq
