// A descriptor is plain data: the operator's own struct, stored by value, plus the table of its
// fields. The table is all that the binding knows of an operator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/dtype.h"

namespace planq {

inline constexpr int kMaxRank = 8;
// A q_min or q_max that the caller left to the operator.
inline constexpr double kUnsetBound = std::numeric_limits<double>::quiet_NaN();

struct Shape {
  std::int32_t rank = 0;
  std::array<std::int64_t, kMaxRank> dims{};

  constexpr std::int64_t operator[](int axis) const { return dims[axis]; }
  constexpr std::int64_t& operator[](int axis) { return dims[axis]; }
  constexpr std::int64_t product(int first, int last) const {
    std::int64_t count = 1;
    for (int axis = first; axis < last; ++axis) count *= dims[axis];
    return count;
  }
  constexpr std::int64_t elements() const { return product(0, rank); }
  constexpr std::int64_t last() const { return rank == 0 ? 1 : dims[rank - 1]; }
  constexpr bool operator==(const Shape&) const = default;
};

// Which elements share a scale. `axis` is meant for channel and group; `size` for group, and for
// block as the columns of a tile, beside its `rows`.
struct Scope {
  ScopeKind kind = ScopeKind::Tensor;
  std::int32_t axis = 0;
  std::int64_t size = 0;
  std::int64_t rows = 0;
};

enum class FieldKind : std::uint8_t {
  Shape,
  Scope,
  DType,
  Mode,
  Quotient,
  NonFinite,
  NibbleOrder,
  Codebook,
  Rounding,
  Bound,  // double; kUnsetBound = None
  Bool,
  Int64,  // 0 = None where a field may be left out
};

struct Field {
  std::string_view name;
  FieldKind kind;
  std::size_t offset;
};

template <class T>
constexpr FieldKind field_kind() {
  if constexpr (std::is_same_v<T, Shape>) return FieldKind::Shape;
  if constexpr (std::is_same_v<T, Scope>) return FieldKind::Scope;
  if constexpr (std::is_same_v<T, DType>) return FieldKind::DType;
  if constexpr (std::is_same_v<T, Mode>) return FieldKind::Mode;
  if constexpr (std::is_same_v<T, Quotient>) return FieldKind::Quotient;
  if constexpr (std::is_same_v<T, NonFinite>) return FieldKind::NonFinite;
  if constexpr (std::is_same_v<T, NibbleOrder>) return FieldKind::NibbleOrder;
  if constexpr (std::is_same_v<T, Codebook>) return FieldKind::Codebook;
  if constexpr (std::is_same_v<T, Rounding>) return FieldKind::Rounding;
  if constexpr (std::is_same_v<T, double>) return FieldKind::Bound;
  if constexpr (std::is_same_v<T, bool>) return FieldKind::Bool;
  if constexpr (std::is_same_v<T, std::int64_t>) return FieldKind::Int64;
}

// One entry of an operator's field table; the kind follows from the member's type.
#define PLANQ_FIELD(Struct, member)                                                    \
  ::planq::Field {                                                                     \
    #member, ::planq::field_kind<decltype(Struct::member)>(), offsetof(Struct, member) \
  }

struct Operator;

// A list of shapes, in storage that the copies of a descriptor share.
struct ShapeList {
  const Shape* data = nullptr;
  std::int64_t count = 0;
};

// An extent that is known at run, and where in a descriptor's storage it stands.
struct DimInfo {
  std::array<char, 32> name{};
  std::int64_t max = 0;
};
struct DimUse {
  std::uint16_t offset;
  std::uint8_t dim;
};
struct DescriptorExtras {
  std::vector<DimInfo> dims;
  std::vector<DimUse> uses;
  std::vector<std::vector<Shape>> lists;
};

struct Descriptor {
  static constexpr std::size_t kCapacity = 256;
  const Operator* op = nullptr;
  alignas(16) std::array<std::byte, kCapacity> storage{};
  std::shared_ptr<const DescriptorExtras> extras;  // null: neither dims nor lists

  template <class D>
  const D& as() const {
    check<D>();
    return *reinterpret_cast<const D*>(storage.data());
  }
  template <class D>
  D& as() {
    check<D>();
    return *reinterpret_cast<D*>(storage.data());
  }

 private:
  template <class D>
  static constexpr void check() {
    static_assert(sizeof(D) <= kCapacity && std::is_trivially_copyable_v<D>);
  }
};

}  // namespace planq
