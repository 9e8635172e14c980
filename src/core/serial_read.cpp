#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/serial.h"

namespace planq {

using Kind = Json::Kind;

namespace {

char upper(char letter) {
  return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
}
std::string upper(std::string_view text) {
  std::string letters(text);
  for (char& letter : letters) letter = upper(letter);
  return letters;
}

// The place of a name in a vocabulary, or -1. Only dtypes are compared to the letter.
int find_name(const Vocabulary& vocabulary, const Json& value, bool exact) {
  if (!value.is(Kind::Text)) return -1;
  for (std::size_t i = 0; i < vocabulary.names.size(); ++i) {
    const std::string_view name = vocabulary.names[i];
    if (name.empty()) continue;
    if (name == value.text() || (!exact && upper(name) == upper(value.text())))
      return static_cast<int>(i);
  }
  return -1;
}

std::string expected_member(const Vocabulary& vocabulary, const Json& value) {
  std::string names;
  for (const std::string_view name : vocabulary.names)
    if (!name.empty()) names += (names.empty() ? "" : ", ") + upper(name);
  return "expected " + std::string(vocabulary.type) + " (" + names + "), got " + shown(value);
}

// A member of a vocabulary by its name, in any case.
Fault read_member(std::string_view field, const Vocabulary& vocabulary, const Json& value,
                  std::uint8_t& member) {
  const int found = find_name(vocabulary, value, false);
  if (found < 0) return {std::string(field), expected_member(vocabulary, value)};
  member = static_cast<std::uint8_t>(found);
  return {};
}

bool is_integer(const Json& value) { return value.is(Kind::Integer) || value.is(Kind::Bool); }

// Whether a name may be a Dim's. Letters beyond ASCII are taken for letters.
bool is_identifier(const std::string& name) {
  const auto letter = [](char c) {
    return c == '_' || upper(c) != c || (c >= 'A' && c <= 'Z') ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c); });
}

// A key of anybody's object as the field of a fault.
std::string as_field(const std::string& key) {
  const bool printable = std::none_of(key.begin(), key.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  return printable && !key.empty() ? key : shown(Json::text(key));
}

// What a scope's kind has beside itself.
struct ScopeForm {
  ScopeKind kind;
  std::vector<std::string_view> required;
  bool has_axis;  // with a default
};
const ScopeForm* scope_form(const Json* kind) {
  static const ScopeForm forms[] = {{ScopeKind::Tensor, {}, false},
                                    {ScopeKind::Channel, {"axis"}, false},
                                    {ScopeKind::Token, {}, false},
                                    {ScopeKind::Group, {"size"}, true},
                                    {ScopeKind::Block, {"rows", "columns"}, false},
                                    {ScopeKind::Pair, {}, false}};
  for (const ScopeForm& form : forms)
    if (kind && kind->is(Kind::Text) && kind->text() == name_of(form.kind)) return &form;
  return nullptr;
}

// Fills the memory that a table of fields describes, field by field, and gathers what has no place
// there. Each function answers whether it was read; if not, `fault` says why.
class FieldReader {
 public:
  explicit FieldReader(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  Fault fault;

  bool read(const Field& field, const Json& value);
  std::shared_ptr<const DescriptorExtras> take_extras() { return std::move(extras_); }

 private:
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
  bool refuse(std::string_view field, const std::string& expected, const Json& value) {
    return refuse(field, "expected " + expected + ", got " + shown(value));
  }

  bool read_integer(std::string_view field, const Json& value, std::int64_t& integer);
  bool read_count(std::string_view field, const Json& value, std::int64_t& count);
  bool read_limit(std::string_view field, const Json& value, std::optional<std::int64_t>& limit);
  bool read_text(std::string_view field, const Json& value, std::string& text);
  bool read_number(const Field& field, const Json& value);
  bool read_dtype(const Field& field, const Json& value);
  bool read_scope(const Field& field, const Json& value);
  bool read_sequence(const Field& field, const Json& value, const char* of,
                     std::vector<Json>& items);
  bool read_shape(const Field& field, const Json& value, Shape& shape);
  bool read_shapes(const Field& field, const Json& value);
  bool read_integers(const Field& field, const Json& value);
  bool read_extent(const Field& field, const Json& shape, const Json& value, int axis, int rank,
                   std::int64_t& extent);
  bool read_dim(const Field& field, const Json& value, int axis, int rank, std::int64_t& extent);
  bool place_dim(const Field& field, const DimInfo& dim, int axis);

  std::byte* memory_;
  std::unique_ptr<DescriptorExtras> extras_;
};

bool FieldReader::read_integer(std::string_view field, const Json& value, std::int64_t& integer) {
  if (value.fits(integer)) return true;
  return refuse(field, is_integer(value) ? "an integer of at most 64 bits" : "an integer", value);
}

bool FieldReader::read_count(std::string_view field, const Json& value, std::int64_t& count) {
  count = 0;
  if (value.is(Kind::Null)) return true;
  if (!read_integer(field, value, count)) return false;
  return count != 0 || refuse(field, "expected a positive integer or None, got 0");
}

bool FieldReader::read_limit(std::string_view field, const Json& value,
                             std::optional<std::int64_t>& limit) {
  limit.reset();
  if (value.is(Kind::Null)) return true;
  std::int64_t most = 0;
  if (!value.is(Kind::Integer) || !value.fits(most) || most < 0)
    return refuse(field, "an integer of at least 0 and at most 63 bits", value);
  limit = most;
  return true;
}

bool FieldReader::read_text(std::string_view field, const Json& value, std::string& text) {
  text.clear();
  if (value.is(Kind::Null)) return true;
  if (!value.is(Kind::Text) || value.text().empty())
    return refuse(field, "a name, or None for any", value);
  text = value.text();
  return true;
}

bool FieldReader::read_number(const Field& field, const Json& value) {
  const double initial = *static_cast<const double*>(field.initial);
  const bool none_allowed = !field.is_required && initial != initial;
  double& number = at<double>(field);
  if (value.is(Kind::Null) && none_allowed) {
    number = kUnsetBound;
    return true;
  }
  if (!value.is(Kind::Integer) && !value.is(Kind::Real))
    return refuse(field.name, none_allowed ? "a number or None" : "a number", value);
  number = value.real();
  if (value.is(Kind::Real)) return true;
  const std::string& digits = value.text();
  const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), number).ec;
  return error == std::errc() || refuse(field.name, "a number", value);
}

bool FieldReader::read_dtype(const Field& field, const Json& value) {
  DType& dtype = at<DType>(field);
  dtype = DType::Unset;
  if (value.is(Kind::Null) && field.may_be_unset()) return true;
  const int found = find_name(field.vocabulary, value, true);
  if (found < 0) return refuse(field.name, "a dtype that planq knows", value);
  dtype = static_cast<DType>(found);
  return true;
}

bool FieldReader::read_scope(const Field& field, const Json& value) {
  const ScopeForm* form = value.is(Kind::Object) ? scope_form(value.find("kind")) : nullptr;
  if (!form) return refuse(field.name, "a planq.Scope", value);
  const auto has = [&](std::string_view name) {
    return std::find(form->required.begin(), form->required.end(), name) != form->required.end() ||
           (name == "axis" && form->has_axis);
  };
  const std::string kind(name_of(form->kind));
  for (const std::string& name : value.names())
    if (name != "kind" && !has(name))
      return refuse(field.name, "a " + kind + " scope has no " + shown(Json::text(name)));
  for (const std::string_view name : form->required)
    if (!value.find(name))
      return refuse(field.name, "a " + kind + " scope needs " + shown(Json::text(name)));
  std::int64_t axis = form->has_axis ? -1 : 0, size = 0, rows = 0;
  const auto read = [&](std::string_view name, std::int64_t& integer) {
    const Json* given = value.find(name);
    if (!given) return true;
    if (!is_integer(*given)) return refuse("scope", "an integer " + std::string(name), *given);
    return read_integer(field.name, *given, integer);
  };
  if (!read("axis", axis) || !read("size", size) || !read("columns", size) || !read("rows", rows))
    return false;
  // An axis beyond 32 bits is outside of every shape; keep it so without wrapping.
  const auto near = static_cast<std::int32_t>(std::clamp<std::int64_t>(axis, -1000, 1000));
  at<Scope>(field) = {form->kind, near, size, rows};
  return true;
}

// The items of a list; of an object its names, as where Python walks through one.
bool FieldReader::read_sequence(const Field& field, const Json& value, const char* of,
                                std::vector<Json>& items) {
  if (value.is(Kind::List)) {
    items = value.items();
  } else if (value.is(Kind::Object)) {
    for (const std::string& name : value.names()) items.push_back(Json::text(name));
  } else {
    return refuse(field.name, std::string("a sequence of ") + of, value);
  }
  return true;
}

bool FieldReader::place_dim(const Field& field, const DimInfo& dim, int axis) {
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

bool FieldReader::read_dim(const Field& field, const Json& value, int axis, int rank,
                           std::int64_t& extent) {
  const Json *name = value.find("dim"), *max = value.find("max");
  if (!name || !max || value.names().size() != 2)
    return refuse(field.name, "an extent: an integer or {'dim': name, 'max': integer}", value);
  DimInfo dim;
  const std::size_t longest = dim.name.size() - 1;
  if (!name->is(Kind::Text) || !is_identifier(name->text()) || name->text().size() > longest)
    return refuse(field.name,
                  "a Dim's name, an identifier of at most " + std::to_string(longest) + " bytes",
                  *name);
  if (!max->is(Kind::Integer) || !max->fits(dim.max) || dim.max < 1)
    return refuse(field.name, "a maximum of 1 to 2^63 - 1 for the Dim '" + name->text() + "'",
                  *max);
  name->text().copy(dim.name.data(), longest);
  const std::string spelled = "Dim(" + shown(*name) + ", max=" + std::to_string(dim.max) + ")";
  if (field.kind != FieldKind::Shape)
    return refuse(field.name, "expected integers in a list of shapes, got " + spelled);
  if (axis == rank - 1)
    return refuse(field.name, "expected an integer for the last axis, got " + spelled);
  extent = dim.max;
  return place_dim(field, dim, axis);
}

bool FieldReader::read_extent(const Field& field, const Json& shape, const Json& value, int axis,
                              int rank, std::int64_t& extent) {
  if (value.is(Kind::Object)) return read_dim(field, value, axis, rank, extent);
  if (is_integer(value)) return read_integer(field.name, value, extent);
  return refuse(field.name, "a sequence of integers", shape);
}

bool FieldReader::read_shape(const Field& field, const Json& value, Shape& shape) {
  std::vector<Json> items;
  if (!read_sequence(field, value, "integers", items)) return false;
  const auto rank = static_cast<int>(std::min<std::size_t>(items.size(), 1 << 30));
  if (rank > kMaxRank)
    return refuse(field.name, "expected at most " + std::to_string(kMaxRank) + " axes, got " +
                                  std::to_string(items.size()));
  shape = {};
  shape.rank = rank;
  for (int axis = 0; axis < rank; ++axis)
    if (!read_extent(field, value, items[static_cast<std::size_t>(axis)], axis, rank, shape[axis]))
      return false;
  return true;
}

bool FieldReader::read_shapes(const Field& field, const Json& value) {
  std::vector<Json> items;
  if (!read_sequence(field, value, "shapes", items)) return false;
  std::vector<Shape> shapes(items.size());
  for (std::size_t i = 0; i < items.size(); ++i)
    if (!read_shape(field, items[i], shapes[i])) return false;
  const std::vector<Shape>& kept = extras().lists.emplace_back(std::move(shapes));
  at<ShapeList>(field) = {kept.data(), static_cast<std::int64_t>(kept.size())};
  return true;
}

bool FieldReader::read_integers(const Field& field, const Json& value) {
  std::vector<Json> items;
  if (!read_sequence(field, value, "integers", items)) return false;
  std::vector<std::int64_t> integers(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!is_integer(items[i])) return refuse(field.name, "a sequence of integers", value);
    if (!read_integer(field.name, items[i], integers[i])) return false;
  }
  const std::vector<std::int64_t>& kept = extras().integers.emplace_back(std::move(integers));
  at<IntegerList>(field) = {kept.data(), static_cast<std::int64_t>(kept.size())};
  return true;
}

bool FieldReader::read(const Field& field, const Json& value) {
  switch (field.kind) {
    case FieldKind::Shape:
      return read_shape(field, value, at<Shape>(field));
    case FieldKind::ShapeList:
      return read_shapes(field, value);
    case FieldKind::IntegerList:
      return read_integers(field, value);
    case FieldKind::Scope:
      return read_scope(field, value);
    case FieldKind::DType:
      return read_dtype(field, value);
    case FieldKind::Enumeration:
      at<std::uint8_t>(field) = *static_cast<const std::uint8_t*>(field.initial);
      if (value.is(Kind::Null) && field.may_be_unset()) return true;
      fault = read_member(field.name, field.vocabulary, value, at<std::uint8_t>(field));
      return fault.ok();
    case FieldKind::Number:
      return read_number(field, value);
    case FieldKind::Flag:
      if (!value.is(Kind::Bool)) return refuse(field.name, "True or False", value);
      at<bool>(field) = value.flag();
      return true;
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

Fault read_operator(const Json& values, const Operator*& op) {
  const Json* name = values.is(Kind::Object) ? values.find("op") : nullptr;
  if (!name || !name->is(Kind::Text))
    return {"op", "expected an object with the operator's name under 'op'"};
  op = find_operator(name->text());
  if (op) return {};
  std::string names;
  for (const Operator* known : operators())
    names += (names.empty() ? "" : ", ") + std::string(known->name);
  return {"op", "no operator is called " + shown(*name) + "; there are " + names};
}

// Whether the names of an object are those of fields, and no field that has no default is missing.
Fault check_names(const Json& values, const Operator& op) {
  for (const std::string& name : values.names()) {
    const auto same = [&](const Field& field) { return field.name == name; };
    if (name != "op" && std::none_of(op.fields.begin(), op.fields.end(), same))
      return {as_field(name), std::string(op.name) + " has no such field"};
  }
  for (const Field& field : op.fields)
    if (field.is_required && !values.find(field.name))
      return {std::string(field.name), std::string(op.name) + " needs this field"};
  return {};
}

}  // namespace

Fault read_descriptor(const Json& values, Descriptor& descriptor) {
  const Operator* op = nullptr;
  if (Fault fault = read_operator(values, op); !fault.ok()) return fault;
  if (Fault fault = check_names(values, *op); !fault.ok()) return fault;
  descriptor = {};
  descriptor.op = op;
  FieldReader reader(descriptor.storage.data());
  for (const Field& field : op->fields) {
    const Json* value = values.find(field.name);
    if (!value)
      std::memcpy(descriptor.storage.data() + field.offset, field.initial, field.size);
    else if (!reader.read(field, *value))
      return reader.fault;
  }
  descriptor.extras = reader.take_extras();
  return resolve(descriptor);
}

Fault read_preference(const Json& values, Preference& preference) {
  if (!values.is(Kind::Object)) return {"preference", "expected an object, got " + shown(values)};
  const auto fields = preference_fields();
  for (const std::string& name : values.names()) {
    const auto same = [&](const Field& field) { return field.name == name; };
    if (std::none_of(fields.begin(), fields.end(), same))
      return {as_field(name), "a preference has no such field"};
  }
  FieldReader reader(&preference);
  for (const Field& field : fields)
    if (const Json* value = values.find(field.name))
      if (!reader.read(field, *value)) return reader.fault;
  return {};
}

}  // namespace planq
