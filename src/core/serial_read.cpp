#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/field_reader.h"
#include "core/serial.h"

namespace planq {

using Kind = Json::Kind;

namespace {

// Values of FieldReader that are JSON.
class JsonSource {
 public:
  using Value = const Json*;

  // Those of a list; of an object its names, as where Python walks through one.
  class Items {
   public:
    std::size_t size() const { return items_->size(); }
    Value operator[](std::size_t at) const { return &(*items_)[at]; }

   private:
    friend class JsonSource;
    std::vector<Json> names_;
    const std::vector<Json>* items_ = &names_;
  };

  bool is_none(Value value) const { return value->is(Kind::Null); }
  bool flag(Value value, bool& flag) const {
    if (!value->is(Kind::Bool)) return false;
    flag = value->flag();
    return true;
  }
  Fit integer(Value value, std::int64_t& integer) const {
    if (value->fits(integer)) return Fit::Yes;
    return value->is(Kind::Integer) ? Fit::TooLarge : Fit::No;
  }
  Fit number(Value value, double& number) const {
    if (!value->is(Kind::Integer) && !value->is(Kind::Real)) return Fit::No;
    number = value->real();
    if (value->is(Kind::Real)) return Fit::Yes;
    const std::string& digits = value->text();
    const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), number).ec;
    return error == std::errc() ? Fit::Yes : Fit::TooLarge;
  }
  bool text(Value value, std::string& text) const {
    if (!value->is(Kind::Text)) return false;
    text = value->text();
    return true;
  }
  int member(const Vocabulary& vocabulary, Value value) const {
    return value->is(Kind::Text) ? enumerator_named(vocabulary, value->text()) : -1;
  }
  bool items(Value value, Items& items) const {
    if (value->is(Kind::List)) items.items_ = &value->items();
    if (value->is(Kind::Object))
      for (const std::string& name : value->names()) items.names_.push_back(Json::text(name));
    return value->is(Kind::List) || value->is(Kind::Object);
  }
  bool scope(Value, WideScope&) const { return false; }
  bool is_dim(Value value) const { return value->is(Kind::Object); }
  bool dim(Value, Value&, Value&) const { return false; }
  bool object(Value value, Value& object) const {
    object = value;
    return value->is(Kind::Object);
  }
  bool find(Value object, std::string_view name, Value& found) const {
    found = object->find(name);
    return found != nullptr;
  }
  template <class Visit>
  void for_each_name(Value object, const Visit& visit) const {
    for (const std::string& name : object->names()) {
      const Json text = Json::text(name);
      if (!visit(&text)) return;
    }
  }

  // Letters beyond ASCII are taken for letters.
  bool is_identifier(const std::string& name) const {
    const auto letter = [](char c) {
      return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             static_cast<unsigned char>(c) >= 0x80;
    };
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    return !name.empty() && letter(name[0]) &&
           std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c); });
  }
  std::string field_of(Value name) const {
    const std::string& key = name->text();
    const bool printable = std::none_of(key.begin(), key.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
    return printable && !key.empty() ? key : shown(name);
  }
  std::string shown(Value value) const { return planq::shown(*value); }
  std::string hint(Value, const std::vector<std::string>&) const { return ""; }
};

}  // namespace

Fault read_descriptor(const Json& values, Descriptor& descriptor) {
  JsonSource source;
  const Operator* op = nullptr;
  if (Fault fault = check_descriptor(source, &values, op); !fault.ok()) return fault;
  descriptor = {};
  descriptor.op = op;
  FieldReader<JsonSource> reader(source, descriptor.storage.data());
  for (const Field& field : op->fields) {
    const Json* value = values.find(field.name);
    if (!value)
      std::memcpy(descriptor.storage.data() + field.offset, field.initial, field.size);
    else if (!reader.read(field, value))
      return reader.fault;
  }
  descriptor.extras = reader.take_extras();
  return resolve(descriptor);
}

Fault read_preference(const Json& values, Preference& preference) {
  JsonSource source;
  if (Fault fault = check_preference(source, &values); !fault.ok()) return fault;
  FieldReader<JsonSource> reader(source, &preference);
  for (const Field& field : preference_fields())
    if (const Json* value = values.find(field.name))
      if (!reader.read(field, value)) return reader.fault;
  return {};
}

}  // namespace planq
