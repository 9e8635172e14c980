// SKUs and tables of kernels, put together at compile time.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "core/dtype.h"

namespace planq {

// What a kernel is compiled for, in the order of its SKU.
template <DType... kListed>
inline constexpr std::array<DType, sizeof...(kListed)> kDTypes{kListed...};

// The public name of a promise: "operator.variant/backend/arithmetic/input_output", of which the
// variant, the arithmetic and the dtypes may be missing. The kernels that keep it are its bodies.
class Sku {
 public:
  constexpr Sku() = default;
  constexpr Sku(std::string_view op, std::string_view variant, Backend backend,
                std::string_view arithmetic, std::span<const DType> dtypes) {
    append(op);
    if (!variant.empty()) append(".", variant);
    append("/", name_of(backend));
    if (!arithmetic.empty()) append("/", arithmetic);
    for (std::size_t i = 0; i < dtypes.size(); ++i)
      append(i == 0 ? "/" : "_", short_name(dtypes[i]));
  }
  constexpr std::string_view view() const { return {text_, size_}; }
  constexpr operator std::string_view() const { return view(); }

 private:
  static constexpr std::size_t kCapacity = 80;

  constexpr void append(std::string_view text) {
    if (text.size() > kCapacity - size_) throw std::length_error("a SKU has at most 80 letters");
    for (const char letter : text) text_[size_++] = letter;
  }
  constexpr void append(std::string_view separator, std::string_view text) {
    append(separator);
    append(text);
  }

  char text_[kCapacity] = {};
  std::size_t size_ = 0;
};

// Arrays of kernels as one table.
template <class Entry, std::size_t... kSizes>
constexpr std::array<Entry, (kSizes + ...)> joined(const std::array<Entry, kSizes>&... parts) {
  return std::apply(
      [](const auto&... entries) { return std::array<Entry, (kSizes + ...)>{entries...}; },
      std::tuple_cat(parts...));
}

}  // namespace planq
