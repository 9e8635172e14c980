// JSON of anybody's making: values, a strict reader, and the text that Python's json.dumps writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api.h"

namespace planq {

class Json {
 public:
  enum class Kind : std::uint8_t { Null, Bool, Integer, Real, Text, List, Object };

  Json() = default;
  static Json flag(bool value);
  static Json integer(std::int64_t value);
  static Json natural(std::uint64_t value);
  static Json digits(std::string decimal);  // an integer of any size
  static Json real(double value);
  static Json text(std::string_view value);  // UTF-8
  static Json list() { return Json(Kind::List); }
  static Json object() { return Json(Kind::Object); }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool flag() const { return flag_; }
  double real() const { return real_; }
  // Of a text; the decimal digits of an integer.
  const std::string& text() const { return text_; }
  // Of a list; the values of an object, in the order of names().
  const std::vector<Json>& items() const { return items_; }
  const std::vector<std::string>& names() const { return names_; }
  // What an object has under a name; null: nothing.
  const Json* find(std::string_view name) const;

  void append(Json value) { items_.push_back(std::move(value)); }
  // The name has to be a new one.
  void set(std::string_view name, Json value);

  // An integer of 64 bits, True and False as 1 and 0; false: it is none.
  bool fits(std::int64_t& value) const;
  // Whether both mean the same, as Python compares: 1, 1.0 and True do, and the order of an
  // object's names says nothing.
  bool operator==(const Json& other) const;

 private:
  explicit Json(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::Null;
  bool flag_ = false;
  double real_ = 0;
  std::string text_;
  std::vector<Json> items_;
  std::vector<std::string> names_;
};

// How a sentence about a text that is none begins.
inline constexpr std::string_view kNotJson = "not JSON: ";

// Reads the text of one value, in UTF-8; false, with a sentence in `fault`, where it is not JSON,
// names something twice, is nested deeper than 64 levels, or has a number that neither 4300 digits
// nor a double hold.
bool parse_json(std::string_view text, Json& value, std::string& fault) PLANQ_API(parse_json);

// As Python's json.dumps does: blanks after commas and colons, and no letters beyond ASCII.
std::string dump(const Json& value) PLANQ_API(dump_json);

// As Python's repr() does, at most 1000 letters: a value in a message.
std::string shown(const Json& value);

}  // namespace planq
