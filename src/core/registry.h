// The registry: operators, and under each the kernels that implement it. Kernels are constexpr data
// written beside the functions they name; nothing is registered at run time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/api.h"
#include "core/bound.h"
#include "core/device.h"
#include "core/guarantee.h"
#include "core/operands.h"
#include "core/sku.h"
#include "core/status.h"

namespace planq {

// What prepare leaves for bind: a trivially copyable struct of the kernel's own, stored by value. A
// kernel that keeps more has an object, which the copies of a state share.
class State {
 public:
  template <class T>
  T& emplace() {
    check<T>();
    return *new (storage_) T{};
  }
  template <class T>
  const T& as() const {
    check<T>();
    return *std::launder(reinterpret_cast<const T*>(storage_));
  }
  template <class T>
  T& own() {
    auto made = std::make_shared<T>();
    owned_ = made;
    return *made;
  }
  template <class T>
  const T& owned() const {
    return *static_cast<const T*>(owned_.get());
  }

 private:
  static constexpr std::size_t kCapacity = 768;
  template <class T>
  static constexpr void check() {
    static_assert(sizeof(T) <= kCapacity && std::is_trivially_copyable_v<T>);
  }
  alignas(16) std::byte storage_[kCapacity];
  std::shared_ptr<const void> owned_;
};

// Compute capabilities, times ten. A range without an end goes on to kLastArch.
inline constexpr std::int32_t kLastArch = 9999;
struct ArchRange {
  std::int32_t first = 0;
  std::int32_t last = kLastArch;
};

// What a kernel asks of operands beyond their specs. Data, so that a selection can show it.
struct Constraint {
  enum class Kind : std::uint8_t {
    Alignment,   // of the address, in bytes
    Divisible,   // the extent of an axis, by `value`
    Contiguous,  // the elements follow one another without a gap
  };
  Kind kind;
  std::int16_t operand;
  std::int16_t axis = -1;
  std::int64_t value = 1;
};

// "an address divisible by 16"
std::string constraint_text(const Constraint& constraint);

// One call of a kernel: what is bound. The descriptor has the extents of this call in the place of
// dims.
struct Call {
  const Descriptor& descriptor;
  const Device& device;
  const State& state;
  Operands operands;
  Workspace workspace;

  template <class Fields>
  const Fields& fields() const {
    return descriptor.as<Fields>();
  }
};

// An entry of the registry. What it promises is a SKU; kernels of one SKU are its bodies: they give
// the same bits and differ in speed, in what they take and in their workspace.
struct Kernel {
  std::string_view op;               // the operator's name
  std::string_view variant = {};     // a form of it, such as a scope; most have none
  std::string_view arithmetic = {};  // where forms have several: an order of sums, a convention
  std::string_view body;
  std::span<const DType> dtypes = {};
  std::uint16_t revision;  // bumped whenever output bits may change; one for all bodies
  Backend backend;
  ArchRange arch;
  std::int16_t rank;    // smaller is preferred; ties go by sku and body, never by link order
  Guarantee guarantee;  // one for all bodies
  // Judges the largest extents of dims: a kernel that takes them takes every smaller one.
  Reason (*rejects)(const Descriptor&, const Device&);
  // Bytes for exactly the extents of the descriptor.
  std::size_t (*workspace)(const Descriptor&, const Device&);
  // Whatever costs time, once in select; independent of dims.
  Status (*prepare)(const Descriptor&, const Device&, State&);
  // Everything but the launches, which it adds to the bound.
  Status (*bind)(const Call&, Bound&);
  // Bytes for every extent up to those of the descriptor, where a smaller one may need more than
  // the largest; null: none does.
  std::size_t (*largest_workspace)(const Descriptor&, const Device&) = nullptr;
  // The same as workspace, from what prepare left, where that is much faster; null: it is not.
  std::size_t (*prepared_workspace)(const Descriptor&, const State&) = nullptr;
  std::span<const Constraint> constraints = {};
  Sku sku = {};  // public, append-only; PLANQ_KERNELS makes it of the fields above
};

// For kernels without either.
inline std::size_t no_workspace(const Descriptor&, const Device&) { return 0; }
inline Status nothing_to_prepare(const Descriptor&, const Device&, State&) {
  return Status::success();
}

constexpr Kernel with_sku(Kernel kernel) {
  kernel.sku = Sku(kernel.op, kernel.variant, kernel.backend, kernel.arithmetic, kernel.dtypes);
  return kernel;
}
// That bodies of one SKU promise the same, under names of their own.
constexpr void check_bodies(const Kernel& a, const Kernel& b) {
  if (a.sku.view() != b.sku.view()) return;
  if (a.body == b.body) throw std::logic_error("two bodies of a SKU have one name");
  if (a.revision != b.revision || a.guarantee != b.guarantee)
    throw std::logic_error("two bodies of a SKU promise different things");
}
template <class Table, std::size_t... kPlaces>
constexpr std::array<Kernel, sizeof...(kPlaces)> with_skus(const Table& kernels,
                                                           std::index_sequence<kPlaces...>) {
  const std::array<Kernel, sizeof...(kPlaces)> named{with_sku(kernels[kPlaces])...};
  for (std::size_t i = 0; i < named.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) check_bodies(named[j], named[i]);
  return named;
}

// The tables of an operator, one for each file host*.cpp and cuda*.cu of its folder. Addresses,
// because the tables are initialised in those files.
using KernelTables = std::span<const std::span<const Kernel>* const>;

// The table of a file, which ends with PLANQ_KERNELS(operator, file's name, table). The build looks
// for it under that name, so a file without one does not link.
#define PLANQ_KERNELS(op, file, kernels)                                                      \
  namespace planq::op {                                                                       \
  constexpr auto kNamed = with_skus(kernels, std::make_index_sequence<std::size(kernels)>{}); \
  extern const std::span<const Kernel> file##_kernels;                                        \
  const std::span<const Kernel> file##_kernels = kNamed;                                      \
  }                                                                                           \
  static_assert(true)

struct Operator {
  std::string_view name;
  std::span<const Field> fields;
  std::span<const OperandInfo> operands;  // in the order of Operands
  // Fills the fields that were left unset and checks all of them.
  Fault (*resolve)(Descriptor&);
  // Whether a row of the results, which is all axes but the last, is made of that row of the
  // operands alone; else what rows share: core/rows.h.
  Required<Reason (*)(const Descriptor&)> rows;
  // What the build found in the operator's folder.
  const KernelTables& tables;
  // Sets what else of a kernel's guarantee the descriptor decides; null: nothing.
  void (*promise)(const Descriptor&, Guarantee&) = nullptr;
};

// What a kernel promises of a descriptor that it takes. The guarantee in its table is that of all
// descriptors, but for what the operator knows better.
Guarantee guarantee_of(const Kernel& kernel, const Descriptor& descriptor) PLANQ_API(guarantee_of);

// Fills and checks the fields of a descriptor, and the sizes of the operands that follow from them.
Fault resolve(Descriptor& descriptor) PLANQ_API(resolve);

// What a descriptor asks of its operands, as many as its operator declares.
void specify(const Descriptor& descriptor, std::span<OperandSpec> specs) PLANQ_API(specify);

std::span<const Operator* const> operators() PLANQ_API(operators);
const Operator* find_operator(std::string_view name) PLANQ_API(find_operator);

// What the build was made of. All of them end with a zero.
struct BuildInfo {
  std::string_view version;
  std::string_view build_id;   // digest of all that follows
  std::string_view source_id;  // digest of src
  std::string_view compiler, flags;
  std::string_view cuda_version, architectures, cuda_flags;  // empty without CUDA
};
const BuildInfo& build_info() PLANQ_API(build_info);

}  // namespace planq
