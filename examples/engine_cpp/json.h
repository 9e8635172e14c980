// A reader of JSON, for the header of a safetensors file and for what planq says of operands.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace engine {

// null, true or false, an integer, a text, a list or an object. Fractions are not read.
struct Json {
  using List = std::vector<Json>;
  using Object = std::map<std::string, Json>;
  std::variant<std::nullptr_t, bool, std::int64_t, std::string, List, Object> value = nullptr;

  template <class T>
  const T& as() const {
    if (const T* found = std::get_if<T>(&value)) return *found;
    throw std::runtime_error("JSON: a value of another type than expected");
  }
  const Json& at(const std::string& name) const {
    const auto& members = as<Object>();
    const auto found = members.find(name);
    if (found == members.end()) throw std::runtime_error("JSON: nothing is called " + name);
    return found->second;
  }
};

class JsonReader {
 public:
  static Json read(std::string_view text) {
    JsonReader reader(text);
    Json value = reader.read_value(0);
    if (reader.next() != '\0' || reader.at_ != text.size()) reader.fail();
    return value;
  }

 private:
  static constexpr int kDeepest = 32;

  explicit JsonReader(std::string_view text) : text_(text) {}

  [[noreturn]] void fail() const {
    throw std::runtime_error("JSON: unexpected text at byte " + std::to_string(at_));
  }
  // The letter behind any blanks; 0 at the end.
  char next() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  void expect(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) fail();
    at_ += word.size();
  }
  bool take(char letter) {
    if (next() != letter) return false;
    ++at_;
    return true;
  }

  Json read_value(int depth) {
    if (depth > kDeepest) fail();
    switch (next()) {
      case '{':
        return read_object(depth);
      case '[':
        return read_list(depth);
      case '"':
        return {read_text()};
      case 't':
        expect("true");
        return {true};
      case 'f':
        expect("false");
        return {false};
      case 'n':
        expect("null");
        return {};
      default:
        return read_integer();
    }
  }

  Json read_integer() {
    std::int64_t number = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
    if (error != std::errc()) fail();
    at_ = static_cast<std::size_t>(end - text_.data());
    return {number};
  }

  // Escapes stand for themselves: names of tensors are compared, not shown.
  std::string read_text() {
    const std::size_t first = ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) fail();
    return std::string(text_.substr(first, at_++ - first));
  }

  Json read_list(int depth) {
    Json::List items;
    expect("[");
    if (take(']')) return {std::move(items)};
    do items.push_back(read_value(depth + 1));
    while (take(','));
    if (!take(']')) fail();
    return {std::move(items)};
  }

  Json read_object(int depth) {
    Json::Object members;
    expect("{");
    if (take('}')) return {std::move(members)};
    do {
      if (next() != '"') fail();
      std::string name = read_text();
      if (!take(':')) fail();
      if (!members.emplace(std::move(name), read_value(depth + 1)).second) fail();
    } while (take(','));
    if (!take('}')) fail();
    return {std::move(members)};
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace engine
