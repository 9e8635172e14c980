// The part of the DLPack 1.x binary interface that the bindings read, and how they read it. The
// layouts are fixed by the DLPack specification; planq lends only what planq.memory allocates, so
// producers' allocators are not declared.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <iterator>

#include "core/operands.h"

namespace planq::dlpack {

enum : std::int32_t { kCpu = 1, kCuda = 2, kCudaManaged = 13 };

struct Version {
  std::uint32_t major, minor;
};
struct Device {
  std::int32_t type, index;
};
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // null = C-contiguous
  std::uint64_t byte_offset;
};
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

enum : std::uint64_t { kReadOnly = 1, kIsCopied = 2 };  // flags

// The C exchange table behind `type(t).__dlpack_c_exchange_api__`.
struct ExchangeApi {
  Version version;
  void* previous;
  void* allocate;
  int (*managed_from_object)(void* object, ManagedVersioned** out);
  void* managed_to_object;
  int (*tensor_from_object)(void* object, Tensor* out);  // null: the producer has none
  int (*current_stream)(std::int32_t type, std::int32_t index, void** out);
};

// By DLPack's type code and bits. Numbers that share a byte are memory's uint8 to planq, never a
// tensor's own type.
constexpr int kKinds = 32, kLargestBits = 64;
constexpr auto kByKind = [] {
  std::array<std::array<DType, kLargestBits + 1>, kKinds> table{};
  for (std::size_t i = 1; i < kFormats.size(); ++i)
    if (kFormats[i].per_byte == 1)
      table[static_cast<std::size_t>(kFormats[i].kind)][kFormats[i].bits] = static_cast<DType>(i);
  return table;
}();

inline DType dtype_of(std::uint8_t kind, std::size_t bits) {
  return kind < kKinds && bits <= kLargestBits ? kByKind[kind][bits] : DType::Unset;
}

inline void name_unknown(DataType type, TensorView& view) {
  for (const FormatInfo& format : kFormats) {
    if (format.bits != type.bits || static_cast<int>(format.kind) != type.code) continue;
    std::snprintf(view.type_text, sizeof view.type_text, "%s", format.name.data());
    return;
  }
  static constexpr const char* kinds[] = {"int",    "uint",    "float", "handle",
                                          "bfloat", "complex", "bool",  "float8_e3m4"};
  const char* kind = type.code < std::size(kinds) ? kinds[type.code] : "dlpack_code";
  std::snprintf(view.type_text, sizeof view.type_text, "%s%d", kind, type.bits);
}

inline void contiguous_strides(TensorView& view) {
  std::uint64_t stride = 1;  // that of anybody's extents may overflow
  for (int axis = view.ndim - 1; axis >= 0; --axis) {
    view.strides[axis] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(view.shape[axis]);
  }
}

inline Memory memory_of(std::int32_t device_type) {
  switch (device_type) {
    case kCpu:
      return Memory::Host;
    case kCuda:
      return Memory::Cuda;
    case kCudaManaged:
      return Memory::Managed;
    default:
      return Memory::Other;
  }
}

// Of at most kMaxRank axes.
inline void read(const Tensor& tensor, TensorView& view) {
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.ndim = tensor.ndim;
  view.dtype =
      tensor.dtype.lanes == 1 ? dtype_of(tensor.dtype.code, tensor.dtype.bits) : DType::Unset;
  if (view.dtype == DType::Unset) name_unknown(tensor.dtype, view);
  view.memory = memory_of(tensor.device.type);
  view.device = tensor.device.index;
  for (int axis = 0; axis < tensor.ndim; ++axis) view.shape[axis] = tensor.shape[axis];
  if (tensor.strides) {
    for (int axis = 0; axis < tensor.ndim; ++axis) view.strides[axis] = tensor.strides[axis];
  } else {
    contiguous_strides(view);
  }
}

}  // namespace planq::dlpack
