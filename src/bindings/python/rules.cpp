#include "bindings/python/rules.h"

#include <string>

#include "bindings/python/kernels.h"

namespace planq::python {

namespace py = pybind11;

namespace {

class RuleWriter {
 public:
  RuleWriter(const Operator& op, const RuleNode* rule) : op_(op), next_(rule) {}

  // `vocabulary`: what constants are enumerators of; null: they are numbers.
  py::tuple write(const Vocabulary* vocabulary) {
    const RuleNode& node = *next_++;
    py::list parts;
    parts.append(text(name_of(node.op)));
    if (node.op == RuleOp::Constant) parts.append(constant(node, vocabulary));
    if (node.op == RuleOp::Leading) parts.append(node.value);
    if (node.storage != FieldStorage::None) parts.append(field_name(node));
    if (node.op == RuleOp::IsAny) parts.append(members(node));
    const bool chooses = node.op == RuleOp::When;
    bool condition = chooses;
    while (next_ != &node + node.size) {
      parts.append(write(chooses && !condition ? vocabulary : nullptr));
      condition = false;
    }
    return py::tuple(parts);
  }

 private:
  static py::object constant(const RuleNode& node, const Vocabulary* vocabulary) {
    if (!vocabulary) return py::int_(node.value);
    return py::str(text(vocabulary->names[static_cast<std::size_t>(node.value)]));
  }
  const Field& field_at(const RuleNode& node) const {
    for (const Field& field : op_.fields)
      if (node.offset >= field.offset && node.offset < field.offset + field.size) return field;
    throw std::logic_error("a rule reads what is no field");
  }
  std::string field_name(const RuleNode& node) const {
    const Field& field = field_at(node);
    if (field.kind != FieldKind::Scope) return text(field.name);
    return text(field.name) + "." + text(scope_part(std::size_t{node.offset} - field.offset));
  }
  static std::string_view scope_part(std::size_t offset) {
    return offset == offsetof(Scope, kind)   ? "kind"
           : offset == offsetof(Scope, axis) ? "axis"
           : offset == offsetof(Scope, size) ? "size"
                                             : "rows";
  }
  py::tuple members(const RuleNode& node) const {
    const Field& field = field_at(node);
    const auto names =
        field.kind == FieldKind::Scope ? kVocabulary<ScopeKind>.names : field.vocabulary.names;
    py::list found;
    for (std::size_t i = 0; i < names.size(); ++i)
      if ((node.value >> i & 1) != 0) found.append(text(names[i]));
    return py::tuple(found);
  }

  const Operator& op_;
  const RuleNode* next_;
};

}  // namespace

py::dict operand_table(const Operator& op) {
  using namespace py::literals;
  py::dict table;
  for (const OperandInfo& operand : op.operands) {
    const auto rule = [&](std::uint8_t first, const Vocabulary* vocabulary = nullptr) {
      return RuleWriter(op, operand.rule(first)).write(vocabulary);
    };
    table[py::str(text(operand.name))] = py::dict(
        "kind"_a = text(name_of(operand.kind)), "role"_a = rule(operand.role, &kVocabulary<Role>),
        "dtype"_a = rule(operand.dtype, &kVocabulary<DType>), "shape"_a = rule(operand.shape),
        "present"_a = rule(operand.present), "optional"_a = rule(operand.optional));
  }
  return table;
}

}  // namespace planq::python
