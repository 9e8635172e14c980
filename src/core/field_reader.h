// Reads the fields of descriptors and preferences, wherever their values come from: JSON, or
// Python. What a field takes, and what is said of anything else, stands here alone; a source knows
// values.
//
// A source has a type Value, which is cheap to copy, a type Items with size() and operator[], and
//
//   bool is_none(Value)
//   bool flag(Value, bool&)                    True or False
//   Fit integer(Value, std::int64_t&)          True is 1
//   Fit number(Value, double&)                 True is none
//   bool text(Value, std::string&)             in UTF-8
//   int member(const Vocabulary&, Value)       the enumerator; -1: none
//   bool items(Value, Items&)                  false: there is nothing to walk through
//   bool scope(Value, WideScope&)              of a scope that needs no reading
//   bool is_dim(Value)                         a Dim, or an object that may be read as one
//   bool dim(Value, Value& name, Value& max)   of a Dim that needs no reading
//   bool object(Value, Value&)                 what has names: the value itself, or a view of it
//   bool find(Value object, std::string_view name, Value&)
//   void for_each_name(Value object, visit)    visit(Value name), until it answers false
//   bool is_identifier(const std::string&)
//   std::string field_of(Value name)           a name of anybody's as the field of a fault
//   std::string shown(Value)                   in a message
//   std::string hint(Value, names)             what may have been meant, as the end of a message
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/given_scope.h"
#include "core/select.h"

namespace planq {

// Whether a value is a number. TooLarge: one for which there is no room.
enum class Fit : std::uint8_t { Yes, TooLarge, No };

inline char upper_case(char letter) {
  return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
}
inline std::string upper_case(std::string_view text) {
  std::string letters(text);
  for (char& letter : letters) letter = upper_case(letter);
  return letters;
}

// The enumerator of a name, or -1. Only dtypes are compared to the letter.
inline int enumerator_named(const Vocabulary& vocabulary, std::string_view name) {
  const bool exact = vocabulary.type == kVocabulary<DType>.type;
  for (std::size_t i = 0; i < vocabulary.names.size(); ++i) {
    const std::string_view known = vocabulary.names[i];
    if (known.empty() || known.size() != name.size()) continue;
    if (known == name || (!exact && upper_case(known) == upper_case(name)))
      return static_cast<int>(i);
  }
  return -1;
}

// "expected Mode (SYMMETRIC, ASYMMETRIC), got 7"
template <class Source>
std::string expected_member(Source& source, const Vocabulary& vocabulary,
                            typename Source::Value value) {
  const bool dtype = vocabulary.type == kVocabulary<DType>.type;
  std::vector<std::string> names;
  std::string listed;
  for (const std::string_view name : vocabulary.names) {
    if (name.empty()) continue;
    names.push_back(dtype ? std::string(name) : upper_case(name));
    listed += (listed.empty() ? "" : ", ") + names.back();
  }
  const std::string expected =
      dtype ? "a dtype that planq knows" : std::string(vocabulary.type) + " (" + listed + ")";
  return "expected " + expected + ", got " + source.shown(value) + source.hint(value, names);
}

// Fills the memory that a table of fields describes, field by field, and gathers what has no place
// there. Each function answers whether it was read; if not, `fault` says why.
template <class Source>
class FieldReader {
 public:
  using Value = typename Source::Value;

  // Without memory for what is read by itself: scopes and dims.
  explicit FieldReader(Source& source, void* memory = nullptr)
      : source_(source), memory_(static_cast<std::byte*>(memory)) {}

  Fault fault;

  bool read(const Field& field, Value value);
  bool read_scope(std::string_view field, Value value, WideScope& scope);
  bool read_dim(std::string_view field, Value value, DimInfo& dim);
  bool read_dim(std::string_view field, Value name, Value max, DimInfo& dim);

  // Of a descriptor; null: there are none.
  std::shared_ptr<const DescriptorExtras> take_extras() { return std::move(extras_); }

 private:
  using Items = typename Source::Items;

  template <class T>
  T& at(const Field& field) {
    return *reinterpret_cast<T*>(memory_ + field.offset);
  }
  DescriptorExtras& extras() {
    if (!extras_) extras_ = std::make_unique<DescriptorExtras>();
    return *extras_;
  }
  bool refuse(std::string_view field, std::string text) {
    fault = {std::string(field), std::move(text)};
    return false;
  }
  bool refuse(std::string_view field, const std::string& expected, Value value) {
    return refuse(field, "expected " + expected + ", got " + source_.shown(value));
  }

  bool read_integer(std::string_view field, Value value, std::int64_t& integer);
  bool read_count(std::string_view field, Value value, std::int64_t& count);
  bool read_limit(std::string_view field, Value value, std::optional<std::int64_t>& limit);
  bool read_number(const Field& field, Value value);
  bool read_member(const Field& field, Value value);
  bool read_text(std::string_view field, Value value, std::string& text);
  bool read_sequence(std::string_view field, Value value, const char* of, Items& items);
  bool read_shape(const Field& field, Value value, Shape& shape);
  bool read_shapes(const Field& field, Value value);
  bool read_integers(const Field& field, Value value);
  bool read_members(const Field& field, Value value);
  void keep(const Field& field, std::vector<std::int64_t> integers);
  bool read_extent(const Field& field, Value shape, Value value, int axis, int rank,
                   std::int64_t& extent);
  bool place_dim(const Field& field, const DimInfo& dim, int axis);
  bool check_scope_names(std::string_view field, const ScopeForm& form, Value object);

  Source& source_;
  std::byte* memory_;
  std::unique_ptr<DescriptorExtras> extras_;
};

// --- Numbers and names ---------------------------------------------------------------------------

template <class Source>
bool FieldReader<Source>::read_integer(std::string_view field, Value value, std::int64_t& integer) {
  const Fit fit = source_.integer(value, integer);
  if (fit == Fit::Yes) return true;
  return refuse(field, fit == Fit::TooLarge ? "an integer of at most 64 bits" : "an integer",
                value);
}

template <class Source>
bool FieldReader<Source>::read_count(std::string_view field, Value value, std::int64_t& count) {
  count = 0;
  if (source_.is_none(value)) return true;
  if (!read_integer(field, value, count)) return false;
  return count != 0 || refuse(field, "expected a positive integer or None, got 0");
}

template <class Source>
bool FieldReader<Source>::read_limit(std::string_view field, Value value,
                                     std::optional<std::int64_t>& limit) {
  limit.reset();
  if (source_.is_none(value)) return true;
  bool flag = false;
  std::int64_t most = -1;
  if (source_.flag(value, flag) || source_.integer(value, most) != Fit::Yes || most < 0)
    return refuse(field, "an integer of at least 0 and at most 63 bits", value);
  limit = most;
  return true;
}

template <class Source>
bool FieldReader<Source>::read_number(const Field& field, Value value) {
  const double initial = *static_cast<const double*>(field.initial);
  const bool none_allowed = !field.is_required && initial != initial;
  double& number = at<double>(field);
  if (source_.is_none(value) && none_allowed) {
    number = kUnsetBound;
    return true;
  }
  const Fit fit = source_.number(value, number);
  if (fit == Fit::Yes) return true;
  return refuse(field.name, fit == Fit::No && none_allowed ? "a number or None" : "a number",
                value);
}

template <class Source>
bool FieldReader<Source>::read_member(const Field& field, Value value) {
  std::uint8_t& member = at<std::uint8_t>(field);
  member = *static_cast<const std::uint8_t*>(field.initial);
  if (source_.is_none(value) && field.may_be_unset()) return true;
  const int found = source_.member(field.vocabulary, value);
  if (found < 0) return refuse(field.name, expected_member(source_, field.vocabulary, value));
  member = static_cast<std::uint8_t>(found);
  return true;
}

template <class Source>
bool FieldReader<Source>::read_text(std::string_view field, Value value, std::string& text) {
  text.clear();
  if (source_.is_none(value)) return true;
  return (source_.text(value, text) && !text.empty()) ||
         refuse(field, "a name, or None for any", value);
}

// --- Scopes --------------------------------------------------------------------------------------

template <class Source>
bool FieldReader<Source>::check_scope_names(std::string_view field, const ScopeForm& form,
                                            Value object) {
  const std::string scope = "a " + std::string(name_of(form.kind)) + " scope ";
  source_.for_each_name(object, [&](Value name) {
    std::string text;
    const bool known = source_.text(name, text) && (text == "kind" || form.has(text));
    return known || refuse(field, scope + "has no " + source_.shown(name));
  });
  if (!fault.ok()) return false;
  Value given;
  for (const std::string_view name : form.required)
    if (!source_.find(object, name, given))
      return refuse(field, scope + "needs '" + std::string(name) + "'");
  return true;
}

template <class Source>
bool FieldReader<Source>::read_scope(std::string_view field, Value value, WideScope& scope) {
  if (source_.scope(value, scope)) return true;
  Value object, given;
  std::string kind, text;
  if (source_.text(value, text) && text.find('(') != std::string::npos)
    return read_scope_text(text, scope) ||
           refuse(field, "a scope such as 'token()', 'channel(0)' or 'group(128)'", value);
  const std::vector<ScopeForm>& forms = scope_forms();
  const bool named = source_.object(value, object) && source_.find(object, "kind", given) &&
                     source_.text(given, kind);
  const auto form = std::find_if(forms.begin(), forms.end(), [&](const ScopeForm& each) {
    return named && name_of(each.kind) == kind;
  });
  if (form == forms.end()) {
    std::vector<std::string> meant;
    for (const ScopeForm& each : forms)
      meant.push_back("planq.Scope." + std::string(name_of(each.kind)) + "()");
    return refuse(
        field, "expected a planq.Scope, got " + source_.shown(value) + source_.hint(value, meant));
  }
  if (!check_scope_names(field, *form, object)) return false;
  scope = form->unread();
  const auto read = [&](std::string_view name) {
    if (!source_.find(object, name, given)) return true;
    std::int64_t& integer = scope.part(name);
    const Fit fit = source_.integer(given, integer);
    if (fit == Fit::No) return refuse(field, "an integer " + std::string(name), given);
    return fit == Fit::Yes || read_integer(field, given, integer);
  };
  return read("axis") && read("size") && read("columns") && read("rows");
}

// --- Shapes --------------------------------------------------------------------------------------

template <class Source>
bool FieldReader<Source>::read_dim(std::string_view field, Value name, Value max, DimInfo& dim) {
  std::string text;
  const std::size_t longest = dim.name.size() - 1;
  if (!source_.text(name, text) || text.size() > longest || !source_.is_identifier(text))
    return refuse(field,
                  "a Dim's name, an identifier of at most " + std::to_string(longest) + " bytes",
                  name);
  bool flag = false;
  if (source_.flag(max, flag) || source_.integer(max, dim.max) != Fit::Yes || dim.max < 1)
    return refuse(field, "a maximum of 1 to 2^63 - 1 for the Dim '" + text + "'", max);
  text.copy(dim.name.data(), longest);
  return true;
}

template <class Source>
bool FieldReader<Source>::read_dim(std::string_view field, Value value, DimInfo& dim) {
  Value object, name, max;
  if (source_.dim(value, name, max)) return read_dim(field, name, max, dim);
  int names = 0;
  const bool whole = source_.object(value, object) && source_.find(object, "dim", name) &&
                     source_.find(object, "max", max);
  if (whole) source_.for_each_name(object, [&](Value) { return ++names <= 2; });
  if (names != 2)
    return refuse(field, "an extent: an integer or {'dim': name, 'max': integer}", value);
  return read_dim(field, name, max, dim);
}

template <class Source>
bool FieldReader<Source>::place_dim(const Field& field, const DimInfo& dim, int axis) {
  std::vector<DimInfo>& dims = extras().dims;
  const auto known = std::find_if(dims.begin(), dims.end(),
                                  [&](const DimInfo& other) { return other.name == dim.name; });
  const auto index = static_cast<std::uint8_t>(known - dims.begin());
  if (known != dims.end() && known->max != dim.max)
    return refuse(field.name, "the Dim '" + std::string(dim.name.data()) + "' has the maximum " +
                                  std::to_string(known->max) + " and " + std::to_string(dim.max));
  if (known == dims.end() && dims.size() == kMaxDims)
    return refuse(field.name,
                  "expected at most " + std::to_string(kMaxDims) + " Dims in a descriptor");
  if (known == dims.end()) dims.push_back(dim);
  const std::size_t offset =
      field.offset + offsetof(Shape, dims) + static_cast<std::size_t>(axis) * sizeof(std::int64_t);
  extras().uses.push_back({static_cast<std::uint16_t>(offset), index});
  return true;
}

template <class Source>
bool FieldReader<Source>::read_sequence(std::string_view field, Value value, const char* of,
                                        Items& items) {
  return source_.items(value, items) || refuse(field, std::string("a sequence of ") + of, value);
}

template <class Source>
bool FieldReader<Source>::read_extent(const Field& field, Value shape, Value value, int axis,
                                      int rank, std::int64_t& extent) {
  if (!source_.is_dim(value)) {
    const Fit fit = source_.integer(value, extent);
    if (fit == Fit::No) return refuse(field.name, "a sequence of integers", shape);
    return fit == Fit::Yes || read_integer(field.name, value, extent);
  }
  DimInfo dim;
  if (!read_dim(field.name, value, dim)) return false;
  const std::string spelled =
      ", got Dim('" + std::string(dim.name.data()) + "', max=" + std::to_string(dim.max) + ")";
  if (field.kind != FieldKind::Shape)
    return refuse(field.name, "expected integers in a list of shapes" + spelled);
  if (axis == rank - 1)
    return refuse(field.name, "expected an integer for the last axis" + spelled);
  extent = dim.max;
  return place_dim(field, dim, axis);
}

template <class Source>
bool FieldReader<Source>::read_shape(const Field& field, Value value, Shape& shape) {
  Items items;
  if (!read_sequence(field.name, value, "integers", items)) return false;
  if (items.size() > static_cast<std::size_t>(kMaxRank))
    return refuse(field.name, "expected at most " + std::to_string(kMaxRank) + " axes, got " +
                                  std::to_string(items.size()));
  shape = {};
  shape.rank = static_cast<std::int32_t>(items.size());
  for (int axis = 0; axis < shape.rank; ++axis)
    if (!read_extent(field, value, items[static_cast<std::size_t>(axis)], axis, shape.rank,
                     shape[axis]))
      return false;
  return true;
}

template <class Source>
bool FieldReader<Source>::read_shapes(const Field& field, Value value) {
  Items items;
  if (!read_sequence(field.name, value, "shapes", items)) return false;
  std::vector<Shape> shapes(items.size());
  for (std::size_t i = 0; i < items.size(); ++i)
    if (!read_shape(field, items[i], shapes[i])) return false;
  const std::vector<Shape>& kept = extras().lists.emplace_back(std::move(shapes));
  at<ShapeList>(field) = {kept.data(), static_cast<std::int64_t>(kept.size())};
  return true;
}

template <class Source>
bool FieldReader<Source>::read_integers(const Field& field, Value value) {
  Items items;
  if (!read_sequence(field.name, value, "integers", items)) return false;
  std::vector<std::int64_t> integers(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Fit fit = source_.integer(items[i], integers[i]);
    if (fit == Fit::No) return refuse(field.name, "a sequence of integers", value);
    if (fit != Fit::Yes) return read_integer(field.name, items[i], integers[i]);
  }
  keep(field, std::move(integers));
  return true;
}

template <class Source>
bool FieldReader<Source>::read_members(const Field& field, Value value) {
  Items items;
  if (!read_sequence(field.name, value, "names", items)) return false;
  std::vector<std::int64_t> members(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const int found = source_.member(field.vocabulary, items[i]);
    if (found < 0)
      return refuse(field.name, "item " + std::to_string(i) + ": " +
                                    expected_member(source_, field.vocabulary, items[i]));
    members[i] = found;
  }
  keep(field, std::move(members));
  return true;
}

template <class Source>
void FieldReader<Source>::keep(const Field& field, std::vector<std::int64_t> integers) {
  const std::vector<std::int64_t>& kept = extras().integers.emplace_back(std::move(integers));
  at<IntegerList>(field) = {kept.data(), static_cast<std::int64_t>(kept.size())};
}

// --- Fields --------------------------------------------------------------------------------------

template <class Source>
bool FieldReader<Source>::read(const Field& field, Value value) {
  switch (field.kind) {
    case FieldKind::Shape:
      return read_shape(field, value, at<Shape>(field));
    case FieldKind::ShapeList:
      return read_shapes(field, value);
    case FieldKind::IntegerList:
      return read_integers(field, value);
    case FieldKind::EnumerationList:
      return read_members(field, value);
    case FieldKind::Scope: {
      WideScope scope;
      if (!read_scope(field.name, value, scope)) return false;
      // An axis beyond 32 bits is outside of every shape; keep it so without wrapping.
      const auto near =
          static_cast<std::int32_t>(std::clamp<std::int64_t>(scope.axis, -1000, 1000));
      at<Scope>(field) = {scope.kind, near, scope.size, scope.rows};
      return true;
    }
    case FieldKind::DType:
    case FieldKind::Enumeration:
      return read_member(field, value);
    case FieldKind::Number:
      return read_number(field, value);
    case FieldKind::Flag:
      return source_.flag(value, at<bool>(field)) || refuse(field.name, "True or False", value);
    case FieldKind::Integer:
      return read_integer(field.name, value, at<std::int64_t>(field));
    case FieldKind::Count:
      return read_count(field.name, value, at<std::int64_t>(field));
    case FieldKind::Limit:
      return read_limit(field.name, value, at<std::optional<std::int64_t>>(field));
    case FieldKind::Text:
      return read_text(field.name, value, at<std::string>(field));
  }
  return false;
}

// --- Objects of fields ---------------------------------------------------------------------------

template <class Source>
Fault unknown_operator(Source& source, typename Source::Value name) {
  std::vector<std::string> known;
  std::string listed;
  for (const Operator* op : operators()) {
    known.emplace_back(op->name);
    listed += (listed.empty() ? "" : ", ") + known.back();
  }
  return {"op", "no operator is called " + source.shown(name) + "; there are " + listed +
                    source.hint(name, known)};
}

// What the names of a preference's fields are said to belong to.
inline constexpr std::string_view kPreference = "a preference";

// The operator that an object names under "op".
template <class Source>
Fault read_operator(Source& source, typename Source::Value values, const Operator*& op) {
  typename Source::Value object, name;
  std::string text;
  if (!source.object(values, object) || !source.find(object, "op", name) ||
      !source.text(name, text))
    return {"op", "expected an object with the operator's name under 'op'"};
  op = find_operator(text);
  if (op) return {};
  return unknown_operator(source, name);
}

// Whether the names of an object are those of fields. `beside` them there may be one more.
template <class Source>
Fault check_names(Source& source, typename Source::Value object, std::string_view whose,
                  std::span<const Field> fields, std::string_view beside = {}) {
  Fault fault;
  source.for_each_name(object, [&](typename Source::Value name) {
    std::string text;
    const auto same = [&](const Field& field) { return field.name == text; };
    if (source.text(name, text) && !text.empty() &&
        (text == beside || std::any_of(fields.begin(), fields.end(), same)))
      return true;
    std::vector<std::string> known;
    for (const Field& field : fields) known.emplace_back(field.name);
    fault = {source.field_of(name),
             std::string(whose) + " has no such field" + source.hint(name, known)};
    return false;
  });
  return fault;
}

// Whether a value is an object with the operator's name, all fields that it needs, and no other.
template <class Source>
Fault check_descriptor(Source& source, typename Source::Value values, const Operator*& op) {
  if (Fault fault = read_operator(source, values, op); !fault.ok()) return fault;
  if (Fault fault = check_names(source, values, op->name, op->fields, "op"); !fault.ok())
    return fault;
  typename Source::Value value;
  for (const Field& field : op->fields)
    if (field.is_required && !source.find(values, field.name, value))
      return {std::string(field.name), std::string(op->name) + " needs this field"};
  return {};
}

// Whether a value is an object of a preference's fields.
template <class Source>
Fault check_preference(Source& source, typename Source::Value values) {
  typename Source::Value object;
  if (source.object(values, object))
    return check_names(source, object, kPreference, preference_fields());
  return {"preference", "expected an object, got " + source.shown(values)};
}

}  // namespace planq
