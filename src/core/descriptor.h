// A descriptor is plain data: the operator's own struct, stored by value, plus the table of its
// fields. The table is all that the binding knows of an operator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/dtype.h"

namespace planq {

inline constexpr int kMaxRank = 8;
inline constexpr int kMaxOperands = 8;
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

struct Descriptor {
  static constexpr std::size_t kCapacity = 256;
  const Operator* op = nullptr;
  alignas(16) std::array<std::byte, kCapacity> storage{};

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

// What an operand has to be, known from the descriptor alone.
struct OperandSpec {
  enum class Role : std::uint8_t { Input, Output };
  Role role = Role::Input;
  bool present = true;         // false: the descriptor says that there is no such operand
  DType dtype = DType::Unset;  // logical; memory holds storage_of(dtype)
  Shape shape;                 // of the storage
  bool optional = false;       // the caller may leave it out: its view then has no data
  bool scalar = false;         // one integer: the caller's own, or in memory as shape () or (1,)
  int same_as = -1;            // an output that may take the place of this input, exactly
};

// Where an operand is, known at run. Strides count storage elements; the innermost is 1.
struct OperandView {
  void* data = nullptr;
  std::array<std::int64_t, kMaxRank> strides{};
  std::int64_t value = 0;  // of a scalar that is not in memory; data is then null
};
using Operands = std::array<OperandView, kMaxOperands>;

}  // namespace planq
