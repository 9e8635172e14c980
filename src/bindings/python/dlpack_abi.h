// The part of the DLPack 1.x binary interface that tensor intake reads. The layouts are fixed by
// the DLPack specification; planq only consumes, so producers' allocators are not declared.
#pragma once

#include <cstdint>

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

}  // namespace planq::dlpack
