// A descriptor is plain data: the operator's own struct, stored by value, plus the table of its
// fields. The table is the one place of a field: bindings parse by it, print by it, and check the
// Python classes against it. A preference has such a table too: core/select.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
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

// One shape per tensor of a list. The shapes stand in the descriptor's extras.
struct ShapeList {
  const Shape* data = nullptr;
  std::int64_t count = 0;

  constexpr const Shape* begin() const { return data; }
  constexpr const Shape* end() const { return data + count; }
};

// Any number of integers, such as one per tensor of a list. They stand in the extras likewise.
struct IntegerList {
  const std::int64_t* data = nullptr;
  std::int64_t count = 0;

  constexpr const std::int64_t* begin() const { return data; }
  constexpr const std::int64_t* end() const { return data + count; }
};

// Any number of enumerators, such as one per tensor of a list. They stand in the extras likewise,
// as integers.
template <class E>
struct EnumerationList : IntegerList {
  constexpr E operator[](std::int64_t i) const { return static_cast<E>(data[i]); }
};
template <class T>
inline constexpr bool kIsEnumerationList = false;
template <class E>
inline constexpr bool kIsEnumerationList<EnumerationList<E>> = true;

// How a field is parsed, stored and printed. It follows from the type of the member, but for Count.
#define PLANQ_FIELD_KIND(_)                                             \
  _(Shape, "shape")                                                     \
  _(ShapeList, "shape_list")                                            \
  _(IntegerList, "integer_list")                                        \
  _(EnumerationList, "enumeration_list")                                \
  _(Scope, "scope")                                                     \
  _(DType, "dtype")             /* a member without a name = None */    \
  _(Enumeration, "enumeration") /* the same; both in a byte */          \
  _(Number, "number")           /* double; kUnsetBound = None */        \
  _(Flag, "flag")               /* bool */                              \
  _(Integer, "integer")         /* std::int64_t */                      \
  _(Count, "count")             /* std::int64_t, not 0; 0 = None */     \
  _(Limit, "limit")             /* std::optional, none or at least 0 */ \
  _(Text, "text")               /* std::string; empty = None */
PLANQ_DEFINE(FieldKind, PLANQ_FIELD_KIND)

struct Field {
  std::string_view name;
  FieldKind kind = FieldKind::Integer;
  std::uint16_t offset = 0, size = 0;
  const void* initial = nullptr;  // the member as its initialiser leaves it: the field's default
  Vocabulary vocabulary = {};     // of a DType, an enumeration or a list of these
  bool is_required = false;       // there is no default
  // Where the field is read from in a call that has only tensors and arguments: "input.shape",
  // "bias.dtype"; empty, or where that operand is absent or an output: an argument. So are the
  // dtype of codes (bytes may be uint8, fp8 or packed) and a packed operand's logical last extent.
  std::string_view source = {};

  constexpr Field required() const {
    Field field = *this;
    field.is_required = true;
    return field;
  }
  // Whether a DType or an enumeration may be None: the default is, which has no name.
  bool may_be_unset() const {
    return !is_required && vocabulary.name(*static_cast<const std::uint8_t*>(initial)).empty();
  }
  constexpr Field from(std::string_view part) const {
    if (!part.ends_with(kind == FieldKind::DType ? ".dtype" : ".shape"))
      throw std::logic_error("a dtype comes from a dtype, a shape from a shape");
    Field field = *this;
    field.source = part;
    return field;
  }
  // An integer that may be None, stored as 0.
  constexpr Field count() const {
    if (kind != FieldKind::Integer) throw std::logic_error("a count is an integer");
    Field field = *this;
    field.kind = FieldKind::Count;
    return field;
  }
};

// The enumeration that a byte is of.
template <class T>
struct EnumerationOf {
  using Type = T;
};
template <class E>
struct EnumerationOf<OptionalEnum<E>> {
  using Type = E;
};
template <class E>
struct EnumerationOf<EnumerationList<E>> {
  using Type = E;
};
template <class T>
inline constexpr bool kIsEnumeration =
    std::is_enum_v<typename EnumerationOf<T>::Type> && !kIsEnumerationList<T>;

template <class T>
constexpr FieldKind field_kind() {
  if constexpr (std::is_same_v<T, Shape>) return FieldKind::Shape;
  if constexpr (std::is_same_v<T, ShapeList>) return FieldKind::ShapeList;
  if constexpr (std::is_same_v<T, IntegerList>) return FieldKind::IntegerList;
  if constexpr (kIsEnumerationList<T>) return FieldKind::EnumerationList;
  if constexpr (std::is_same_v<T, Scope>) return FieldKind::Scope;
  if constexpr (std::is_same_v<T, DType>) return FieldKind::DType;
  if constexpr (kIsEnumeration<T> && !std::is_same_v<T, DType>) return FieldKind::Enumeration;
  if constexpr (std::is_same_v<T, double>) return FieldKind::Number;
  if constexpr (std::is_same_v<T, bool>) return FieldKind::Flag;
  if constexpr (std::is_same_v<T, std::int64_t>) return FieldKind::Integer;
  if constexpr (std::is_same_v<T, std::optional<std::int64_t>>) return FieldKind::Limit;
  if constexpr (std::is_same_v<T, std::string>) return FieldKind::Text;
}

template <class T>
constexpr Field make_field(std::string_view name, std::size_t offset, const T* initial) {
  Field field{name, field_kind<T>(), static_cast<std::uint16_t>(offset), sizeof(T), initial};
  if constexpr (kIsEnumeration<T> || kIsEnumerationList<T>) {
    using Enumeration = typename EnumerationOf<T>::Type;
    static_assert((sizeof(T) == 1 || kIsEnumerationList<T>) && !kNames<Enumeration>.empty());
    field.vocabulary = kVocabulary<Enumeration>;
  }
  return field;
}

template <class Struct>
inline constexpr Struct kInitial{};

// One entry of an operator's field table: `PLANQ_FIELD(Fields, shape).required()`.
#define PLANQ_FIELD(Struct, member) \
  ::planq::make_field(#member, offsetof(Struct, member), &::planq::kInitial<Struct>.member)

struct Operator;

// An extent that is known at run.
struct DimInfo {
  std::array<char, 32> name{};  // ends with a zero
  std::int64_t max = 0;
};
// Where in a descriptor's storage an extent stands that is a Dim's; it holds the maximum there.
struct DimUse {
  std::uint16_t offset = 0;
  std::uint8_t dim = 0;
};
// What has no place in a descriptor's storage. Immutable, and shared by copies of the descriptor.
struct DescriptorExtras {
  std::vector<DimInfo> dims;
  std::vector<DimUse> uses;
  std::vector<std::vector<Shape>> lists;            // what ShapeLists in storage point to
  std::vector<std::vector<std::int64_t>> integers;  // what IntegerLists and EnumerationLists do
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
  int count_dims() const { return extras ? static_cast<int>(extras->dims.size()) : 0; }
  // The dim whose maximum stands at this place of the storage; null: none does.
  const DimInfo* dim_at(const std::int64_t& extent) const {
    const auto* place = reinterpret_cast<const std::byte*>(&extent);
    if (extras)
      for (const DimUse& use : extras->uses)
        if (storage.data() + use.offset == place) return &extras->dims[use.dim];
    return nullptr;
  }

 private:
  template <class D>
  static constexpr void check() {
    static_assert(sizeof(D) <= kCapacity && std::is_trivially_copyable_v<D>);
  }
};

}  // namespace planq
