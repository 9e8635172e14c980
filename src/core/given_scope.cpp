#include "core/given_scope.h"

#include <charconv>

namespace planq {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\f\v";
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

bool read_part(std::string_view digits, std::int64_t& number) {
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  const char* const end = digits.data() + digits.size();
  const auto [behind, error] = std::from_chars(digits.data(), end, number);
  return error == std::errc() && behind == end;
}

// The parts of a form that were given so far. Those by position come first.
class ScopeParts {
 public:
  ScopeParts(const ScopeForm& form, WideScope& scope)
      : form_(form), scope_(scope), order_(form.required) {
    if (form.has_axis) order_.emplace_back("axis");
  }

  bool read(std::string_view part) {
    const std::size_t equals = part.find('=');
    if (equals != std::string_view::npos)
      return put(trimmed(part.substr(0, equals)), trimmed(part.substr(equals + 1)), true);
    return given_.size() < order_.size() && !has_names_ &&
           put(order_[given_.size()], trimmed(part), false);
  }
  bool are_whole() const {
    return std::all_of(form_.required.begin(), form_.required.end(),
                       [&](std::string_view name) { return has(name); });
  }

 private:
  bool has(std::string_view name) const {
    return std::find(given_.begin(), given_.end(), name) != given_.end();
  }
  bool put(std::string_view name, std::string_view digits, bool is_named) {
    if (!form_.has(name) || has(name) || !read_part(digits, scope_.part(name))) return false;
    given_.push_back(name);
    has_names_ |= is_named;
    return true;
  }

  const ScopeForm& form_;
  WideScope& scope_;
  std::vector<std::string_view> order_, given_;
  bool has_names_ = false;
};

}  // namespace

const std::vector<ScopeForm>& scope_forms() {
  static const std::vector<ScopeForm> forms{{ScopeKind::Tensor, {}},
                                            {ScopeKind::Channel, {"axis"}},
                                            {ScopeKind::Token, {}},
                                            {ScopeKind::Group, {"size"}, true},
                                            {ScopeKind::Block, {"rows", "columns"}},
                                            {ScopeKind::Pair, {}}};
  return forms;
}

bool read_scope_text(std::string_view text, WideScope& scope) {
  text = trimmed(text);
  const std::size_t bracket = text.find('(');
  if (bracket == std::string_view::npos || text.back() != ')') return false;
  const std::string_view kind = trimmed(text.substr(0, bracket));
  const std::vector<ScopeForm>& forms = scope_forms();
  const auto form = std::find_if(forms.begin(), forms.end(),
                                 [&](const ScopeForm& each) { return name_of(each.kind) == kind; });
  if (form == forms.end()) return false;
  scope = form->unread();
  ScopeParts parts(*form, scope);
  std::string_view inside = text.substr(bracket + 1, text.size() - bracket - 2);
  while (!trimmed(inside).empty()) {
    const std::size_t comma = inside.find(',');
    if (!parts.read(inside.substr(0, comma))) return false;
    if (comma == std::string_view::npos) break;
    inside.remove_prefix(comma + 1);
    if (trimmed(inside).empty()) return false;
  }
  return parts.are_whole();
}

}  // namespace planq
