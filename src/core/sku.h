// Names and tables of rows, put together at compile time.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>

namespace planq {

// The texts of Parts::kParts as one.
template <class Parts>
class JoinedText {
 public:
  static constexpr std::string_view view() { return {kText.data(), kText.size()}; }

 private:
  static constexpr std::size_t kSize = [] {
    std::size_t size = 0;
    for (const std::string_view part : Parts::kParts) size += part.size();
    return size;
  }();
  static constexpr std::array<char, kSize> kText = [] {
    std::array<char, kSize> text{};
    std::size_t at = 0;
    for (const std::string_view part : Parts::kParts)
      for (const char c : part) text[at++] = c;
    return text;
  }();
};

// Arrays of rows as one table.
template <class Row, std::size_t... kSizes>
constexpr std::array<Row, (kSizes + ...)> joined(const std::array<Row, kSizes>&... parts) {
  return std::apply([](const auto&... rows) { return std::array<Row, (kSizes + ...)>{rows...}; },
                    std::tuple_cat(parts...));
}

}  // namespace planq
