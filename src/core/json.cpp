#include "core/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <system_error>

namespace planq {

using Kind = Json::Kind;

// --- Values --------------------------------------------------------------------------------------

Json Json::flag(bool value) {
  Json made(Kind::Bool);
  made.flag_ = value;
  return made;
}
Json Json::integer(std::int64_t value) { return digits(std::to_string(value)); }
Json Json::natural(std::uint64_t value) { return digits(std::to_string(value)); }
Json Json::digits(std::string decimal) {
  Json made(Kind::Integer);
  made.text_ = decimal == "-0" ? "0" : std::move(decimal);
  return made;
}
Json Json::real(double value) {
  Json made(Kind::Real);
  made.real_ = value;
  return made;
}
Json Json::text(std::string_view value) {
  Json made(Kind::Text);
  made.text_ = value;
  return made;
}

const Json* Json::find(std::string_view name) const {
  const auto at = std::find(names_.begin(), names_.end(), name);
  return at == names_.end() ? nullptr : &items_[static_cast<std::size_t>(at - names_.begin())];
}

void Json::set(std::string_view name, Json value) {
  names_.emplace_back(name);
  items_.push_back(std::move(value));
}

bool Json::fits(std::int64_t& value) const {
  if (kind_ == Kind::Bool) value = flag_;
  if (kind_ != Kind::Integer) return kind_ == Kind::Bool;
  const char* const last = text_.data() + text_.size();
  const auto [end, error] = std::from_chars(text_.data(), last, value);
  return error == std::errc() && end == last;
}

namespace {

bool is_number(const Json& value) {
  return value.is(Kind::Bool) || value.is(Kind::Integer) || value.is(Kind::Real);
}

// Of a number; infinite where an integer is beyond what a double holds.
double number_of(const Json& value) {
  if (value.is(Kind::Real)) return value.real();
  if (value.is(Kind::Bool)) return value.flag() ? 1 : 0;
  double number = 0;
  const std::string& digits = value.text();
  const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), number).ec;
  return error == std::errc() ? number : std::numeric_limits<double>::infinity();
}

bool same_number(const Json& a, const Json& b) {
  const bool integers = a.is(Kind::Integer) && b.is(Kind::Integer);
  return integers ? a.text() == b.text() : number_of(a) == number_of(b);
}

bool same_object(const Json& a, const Json& b) {
  if (a.names().size() != b.names().size()) return false;
  for (std::size_t i = 0; i < a.names().size(); ++i) {
    const Json* other = b.find(a.names()[i]);
    if (!other || !(a.items()[i] == *other)) return false;
  }
  return true;
}

}  // namespace

bool Json::operator==(const Json& other) const {
  if (is_number(*this) && is_number(other)) return same_number(*this, other);
  if (kind_ != other.kind_) return false;
  if (kind_ == Kind::Object) return same_object(*this, other);
  return text_ == other.text_ && items_ == other.items_;
}

// --- Reading -------------------------------------------------------------------------------------

namespace {

constexpr int kDeepest = 64;
constexpr std::size_t kMostDigits = 4300;

void append_utf8(std::string& text, std::uint32_t letter) {
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80 | ((letter >> shift) & 0x3f));
  };
  if (letter < 0x80) {
    text += static_cast<char>(letter);
  } else if (letter < 0x800) {
    text += static_cast<char>(0xc0 | (letter >> 6));
    tail(0);
  } else if (letter < 0x10000) {
    text += static_cast<char>(0xe0 | (letter >> 12));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xf0 | (letter >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

// The letter that starts at `at`, which is moved behind it; false: no UTF-8.
bool next_letter(std::string_view text, std::size_t& at, std::uint32_t& letter) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(at);
  const int more = first < 0x80 ? 0 : first < 0xc2 ? -1 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
  if (more < 0 || first > 0xf4 || text.size() - at <= static_cast<std::size_t>(more)) return false;
  letter = more == 0 ? first : first & (0x3f >> more);
  for (int i = 1; i <= more; ++i) {
    const std::uint8_t next = byte(at + static_cast<std::size_t>(i));
    if ((next & 0xc0) != 0x80) return false;
    letter = letter << 6 | (next & 0x3f);
  }
  at += static_cast<std::size_t>(more) + 1;
  constexpr std::uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  return letter >= kLeast[more] && letter <= 0x10ffff && (letter < 0xd800 || letter > 0xdfff);
}

class Parser {
 public:
  Parser(std::string_view text, std::string& fault) : text_(text), fault_(fault) {}

  bool read(Json& value) {
    if (!read_value(value, 0)) return false;
    skip_blanks();
    return at_ == text_.size() || fail("expected the end of the text");
  }

 private:
  bool fail(const std::string& what) {
    fault_ = std::string(kNotJson) + what + " at byte " + std::to_string(at_);
    return false;
  }
  bool more() const { return at_ < text_.size(); }
  char peek() const { return more() ? text_[at_] : '\0'; }
  bool take(char letter) {
    if (!more() || text_[at_] != letter) return false;
    ++at_;
    return true;
  }
  void skip_blanks() {
    while (more() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool read_value(Json& value, int depth) {
    skip_blanks();
    switch (peek()) {
      case '{':
        return read_object(value, depth);
      case '[':
        return read_list(value, depth);
      case '"': {
        std::string text;
        if (!read_text(text)) return false;
        value = Json::text(text);
        return true;
      }
      case 't':
        value = Json::flag(true);
        return read_word("true");
      case 'f':
        value = Json::flag(false);
        return read_word("false");
      case 'n':
        value = Json();
        return read_word("null");
      default:
        return read_number(value);
    }
  }

  bool read_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return fail("expected a value");
    at_ += word.size();
    return true;
  }

  std::size_t skip_digits() {
    const std::size_t first = at_;
    while (more() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - first;
  }

  bool read_number(Json& value) {
    const std::size_t first = at_;
    take('-');
    const bool zero = peek() == '0';
    const std::size_t digits = skip_digits();
    if (digits == 0 || (zero && digits > 1)) return fail("expected a value");
    bool whole = true;
    if (take('.')) {
      whole = false;
      if (skip_digits() == 0) return fail("expected a digit");
    }
    if (take('e') || take('E')) {
      whole = false;
      if (!take('+')) take('-');
      if (skip_digits() == 0) return fail("expected a digit");
    }
    const std::string_view token = text_.substr(first, at_ - first);
    if (digits > kMostDigits) return fail("a number of more than 4300 digits");
    if (whole) {
      value = Json::digits(std::string(token));
      return true;
    }
    double number = 0;
    const auto error = std::from_chars(token.data(), token.data() + token.size(), number).ec;
    if (error != std::errc()) return fail("a number beyond those of double");
    value = Json::real(number);
    return true;
  }

  // Four hexadecimal digits.
  bool read_unit(std::uint32_t& unit) {
    const std::string_view token = text_.substr(std::min(at_, text_.size()), 4);
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), unit, 16);
    if (error != std::errc() || token.size() != 4 || end != token.data() + 4)
      return fail("expected four hexadecimal digits");
    at_ += 4;
    return true;
  }

  bool read_unicode(std::string& text) {
    std::uint32_t letter = 0, low = 0;
    if (!read_unit(letter)) return false;
    if (letter >= 0xd800 && letter <= 0xdbff) {
      if (!take('\\') || !take('u')) return fail("half a surrogate pair");
      if (!read_unit(low)) return false;
      if (low < 0xdc00 || low > 0xdfff) return fail("half a surrogate pair");
      letter = 0x10000 + ((letter - 0xd800) << 10) + (low - 0xdc00);
    } else if (letter >= 0xdc00 && letter <= 0xdfff) {
      return fail("half a surrogate pair");
    }
    append_utf8(text, letter);
    return true;
  }

  bool read_escape(std::string& text) {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    if (take('u')) return read_unicode(text);
    const std::size_t which = kLetters.find(peek());
    if (!more() || which == std::string_view::npos) return fail("an unknown escape");
    text += kMeant[which];
    ++at_;
    return true;
  }

  bool read_text(std::string& text) {
    ++at_;
    while (more()) {
      if (take('"')) return true;
      if (take('\\')) {
        if (!read_escape(text)) return false;
        continue;
      }
      std::uint32_t letter = 0;
      const std::size_t first = at_;
      if (!next_letter(text_, at_, letter)) return fail("text that is not UTF-8");
      if (letter < 0x20) return fail("a control character");
      text.append(text_.substr(first, at_ - first));
    }
    return fail("a text without its end");
  }

  bool read_list(Json& value, int depth) {
    if (depth == kDeepest) return fail("it is nested too deep");
    value = Json::list();
    ++at_;
    skip_blanks();
    if (take(']')) return true;
    while (true) {
      Json item;
      if (!read_value(item, depth + 1)) return false;
      value.append(std::move(item));
      skip_blanks();
      if (take(']')) return true;
      if (!take(',')) return fail("expected ',' or ']'");
    }
  }

  bool read_object(Json& value, int depth) {
    if (depth == kDeepest) return fail("it is nested too deep");
    value = Json::object();
    ++at_;
    skip_blanks();
    if (take('}')) return true;
    while (true) {
      std::string name;
      Json item;
      skip_blanks();
      if (peek() != '"') return fail("expected a name");
      if (!read_text(name)) return false;
      skip_blanks();
      if (!take(':')) return fail("expected ':'");
      if (!read_value(item, depth + 1)) return false;
      value.set(name, std::move(item));
      skip_blanks();
      if (take('}')) return is_unique(value);
      if (!take(',')) return fail("expected ',' or '}'");
    }
  }

  bool is_unique(const Json& object) {
    std::vector<std::string_view> names(object.names().begin(), object.names().end());
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return true;
    return fail("the name " + shown(Json::text(*twice)) + " appears twice");
  }

  std::string_view text_;
  std::string& fault_;
  std::size_t at_ = 0;
};

}  // namespace

bool parse_json(std::string_view text, Json& value, std::string& fault) {
  return Parser(text, fault).read(value);
}

// --- Writing -------------------------------------------------------------------------------------

namespace {

// As Python's repr() of a float: the shortest digits that mean it, with an exponent where the point
// would stand far from them.
std::string real_text(double value) {
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (std::isnan(value)) return "nan";
  char text[40];
  const char* const end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  std::string digits(static_cast<const char*>(text), end);
  const std::size_t at = digits.find('e');
  const int exponent = std::stoi(digits.substr(at + 1));
  if (exponent < -4 || exponent >= 16) return digits;
  const std::string sign = digits[0] == '-' ? "-" : "";
  digits = digits.substr(sign.size(), at - sign.size());
  std::erase(digits, '.');
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto point = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= point) return sign + digits + std::string(point - digits.size(), '0') + ".0";
  return sign + digits.substr(0, point) + "." + digits.substr(point);
}

std::string hexadecimal(const char* prefix, std::uint32_t value, int digits) {
  char text[16];
  std::snprintf(text, sizeof text, "%s%0*x", prefix, digits, value);
  return text;
}

// Calls visit(letter, bytes) for each letter of a text in UTF-8.
template <class Visit>
void for_each_letter(std::string_view text, const Visit& visit) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t first = at;
    std::uint32_t letter = 0;
    if (!next_letter(text, at, letter)) {
      letter = 0xfffd;
      at = first + 1;
    }
    visit(letter, text.substr(first, at - first));
  }
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for_each_letter(text, [&](std::uint32_t letter, std::string_view bytes) {
    constexpr std::string_view kMeant = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    const std::size_t which = letter < 0x80 ? kMeant.find(static_cast<char>(letter)) : kMeant.npos;
    if (which != kMeant.npos) {
      out += '\\';
      out += kLetters[which];
    } else if (letter >= 0x20 && letter < 0x7f) {
      out += bytes;
    } else if (letter < 0x10000) {
      out += hexadecimal("\\u", letter, 4);
    } else {
      out += hexadecimal("\\u", 0xd800 + ((letter - 0x10000) >> 10), 4);
      out += hexadecimal("\\u", 0xdc00 + (letter & 0x3ff), 4);
    }
  });
  return out + "\"";
}

// A text as Python's repr() has it.
std::string repr(std::string_view text) {
  const bool doubled = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for_each_letter(text, [&](std::uint32_t letter, std::string_view bytes) {
    constexpr std::string_view kMeant = "\\\t\n\r", kLetters = "\\tnr";
    const std::size_t which = letter < 0x80 ? kMeant.find(static_cast<char>(letter)) : kMeant.npos;
    if (which != kMeant.npos) {
      out += '\\';
      out += kLetters[which];
    } else if (letter == static_cast<std::uint32_t>(quote)) {
      out += '\\';
      out += quote;
    } else if (letter < 0x20 || (letter >= 0x7f && letter <= 0xa0) || letter == 0xad) {
      out += hexadecimal("\\x", letter, 2);
    } else {
      out += bytes;
    }
  });
  return out + quote;
}

// What two languages write differently.
struct Style {
  const char *null, *yes, *no;
  std::string (*text)(std::string_view);
};
constexpr Style kJson{"null", "true", "false", quoted};
constexpr Style kPython{"None", "True", "False", repr};

void append(std::string& out, const Json& value, const Style& style) {
  switch (value.kind()) {
    case Kind::Null:
      out += style.null;
      return;
    case Kind::Bool:
      out += value.flag() ? style.yes : style.no;
      return;
    case Kind::Integer:
      out += value.text();
      return;
    case Kind::Real:
      out += real_text(value.real());
      return;
    case Kind::Text:
      out += style.text(value.text());
      return;
    case Kind::List:
    case Kind::Object:
      break;
  }
  const bool named = value.is(Kind::Object);
  out += named ? '{' : '[';
  for (std::size_t i = 0; i < value.items().size(); ++i) {
    if (i > 0) out += ", ";
    if (named) out += style.text(value.names()[i]) + ": ";
    append(out, value.items()[i], style);
  }
  out += named ? '}' : ']';
}

}  // namespace

std::string dump(const Json& value) {
  std::string out;
  append(out, value, kJson);
  return out;
}

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 1000;
  std::string out;
  append(out, value, kPython);
  if (out.size() <= kLongest) return out;
  std::size_t letters = 0, bytes = 0;
  for_each_letter(out, [&](std::uint32_t, std::string_view letter) {
    if (letters++ < kLongest) bytes += letter.size();
  });
  return letters <= kLongest ? out : out.substr(0, bytes) + "...";
}

}  // namespace planq
