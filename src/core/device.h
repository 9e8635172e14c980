// Facts about a device, as plain data: selection for any GPU is a pure function of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/api.h"
#include "core/dtype.h"
#include "core/status.h"

namespace planq {

struct Device {
  Backend backend = Backend::Host;
  std::int32_t index = 0;  // CUDA ordinal
  std::int32_t arch = 0;   // 90 = compute capability 9.0; 0 on the host
  std::int32_t multiprocessors = 0;
  std::size_t shared_memory_per_block = 0;  // opt-in maximum
  std::size_t l2_bytes = 0;
  std::string name;
};

// A stream that the caller owns. Host streams run inline.
struct Stream {
  Backend backend = Backend::Host;
  void* handle = nullptr;
  std::int32_t device = 0;
  std::int32_t threads = 1;  // host only
};

struct Workspace {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

inline constexpr std::size_t kWorkspaceAlignment = 256;
// No operand and no workspace is larger: offsets are signed, and no memory comes near.
inline constexpr std::int64_t kMostBytes = std::numeric_limits<std::int64_t>::max();

Device host_device() PLANQ_API(host_device);
// Facts of a GPU that need not be present, by its architecture: "sm_80", "sm_89", "sm_120", any of
// compute capability 8.0 and later; false for another name.
bool modelled_device(const std::string& name, Device& device) PLANQ_API(modelled_device);

// The functions below need a driver; without one they report a CUDA status and no devices.
int cuda_device_count() PLANQ_API(cuda_device_count);
Status cuda_device(int index, Device& device) PLANQ_API(cuda_device);
Status cuda_stream_device(void* handle, int& device) PLANQ_API(cuda_stream_device);
const char* cuda_error_name(int error) PLANQ_API(cuda_error_name);
const char* cuda_error_text(int error) PLANQ_API(cuda_error_text);

// Makes a device current for a scope and restores the caller's afterwards.
class DeviceGuard {
 public:
  explicit DeviceGuard(const Stream& stream);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  Status status() const { return status_; }

 private:
  int previous_ = -1;
  Status status_;
};

}  // namespace planq
