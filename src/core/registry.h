// The registry: operators, and under each the rows (kernels) that implement it. Rows are constexpr
// data written beside the kernels they name; nothing is registered at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/api.h"
#include "core/descriptor.h"
#include "core/device.h"
#include "core/guarantee.h"
#include "core/status.h"

namespace planq {

// What prepare leaves for launch: the row's own trivially copyable struct, stored by value.
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

 private:
  static constexpr std::size_t kCapacity = 768;
  template <class T>
  static constexpr void check() {
    static_assert(sizeof(T) <= kCapacity && std::is_trivially_copyable_v<T>);
  }
  alignas(16) std::byte storage_[kCapacity];
};

struct ArchRange {
  std::int32_t first = 0;
  std::int32_t last = 9999;
};

struct Kernel {
  std::string_view sku;    // public, append-only
  std::uint16_t revision;  // bumped whenever output bits may change
  Backend backend;
  ArchRange arch;
  std::int16_t rank;  // smaller is preferred; ties go by sku, never by link order
  Guarantee guarantee;
  Reason (*rejects)(const Descriptor&, const Device&);
  std::size_t (*workspace)(const Descriptor&, const Device&);
  Status (*prepare)(const Descriptor&, const Device&, State&);
  Status (*launch)(const State&, const Operands&, Workspace, const Stream&);
};

struct Operator {
  std::string_view name;
  std::span<const Field> fields;
  std::span<const std::string_view> operands;  // names, in the order of Operands
  // Fills the fields that were left unset and checks all of them.
  Fault (*resolve)(Descriptor&);
  // Writes one spec per operand name.
  void (*specify)(const Descriptor&, std::span<OperandSpec>);
  // Tables of rows, one per translation unit that defines some. Addresses, because the spans
  // themselves are defined in those units.
  std::span<const std::span<const Kernel>* const> tables;
};

// Fills and checks the fields of a descriptor, and the sizes of the operands that follow from them.
PLANQ_API Fault resolve(Descriptor& descriptor);

PLANQ_API std::span<const Operator* const> operators();
PLANQ_API const Operator* find_operator(std::string_view name);

struct BuildInfo {
  std::string_view version, build_id, cuda_version, architectures, compiler;
};
PLANQ_API const BuildInfo& build_info();

}  // namespace planq
