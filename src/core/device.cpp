#include "core/device.h"

#if defined(PLANQ_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace planq {

Device host_device() {
  Device device;
  device.name = "host";
  return device;
}

bool modelled_device(const std::string& name, Device& device) {
  struct Model {
    const char* name;
    std::int32_t arch, multiprocessors;
    std::size_t shared_memory_per_block, l2_bytes;
  };
  // The data-centre part of each architecture that the build carries code for.
  static constexpr Model models[] = {
      {"sm_80", 80, 108, 166912, 40u << 20},
      {"sm_90", 90, 132, 232448, 60u << 20},
  };
  for (const Model& model : models) {
    if (name != model.name) continue;
    device = {
        Backend::Cuda,  0,         model.arch, model.multiprocessors, model.shared_memory_per_block,
        model.l2_bytes, model.name};
    return true;
  }
  return false;
}

#if defined(PLANQ_WITH_CUDA)

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // no driver is an answer here, not a sticky error for a later launch
    return 0;
  }
  return count;
}

Status cuda_device(int index, Device& device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess)
    return Status::cuda(error);
  device.backend = Backend::Cuda;
  device.index = index;
  device.arch = properties.major * 10 + properties.minor;
  device.multiprocessors = properties.multiProcessorCount;
  device.shared_memory_per_block = properties.sharedMemPerBlockOptin;
  device.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  device.name = properties.name;
  return Status::success();
}

Status cuda_stream_device(void* handle, int& device) {
  const cudaError_t error = cudaStreamGetDevice(static_cast<cudaStream_t>(handle), &device);
  return error == cudaSuccess ? Status::success() : Status::cuda(error);
}

const char* cuda_error_name(int error) { return cudaGetErrorName(static_cast<cudaError_t>(error)); }
const char* cuda_error_text(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

DeviceGuard::DeviceGuard(const Stream& stream) {
  if (stream.backend != Backend::Cuda) return;
  int current = 0;
  cudaError_t error = cudaGetDevice(&current);
  if (error == cudaSuccess && current != stream.device) {
    error = cudaSetDevice(stream.device);
    if (error == cudaSuccess) previous_ = current;
  }
  if (error != cudaSuccess) status_ = Status::cuda(error);
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

#else

namespace {
constexpr int kNoDriver = 35;  // cudaErrorInsufficientDriver, which a host-only build reports
}
int cuda_device_count() { return 0; }
Status cuda_device(int, Device&) { return Status::cuda(kNoDriver); }
Status cuda_stream_device(void*, int&) { return Status::cuda(kNoDriver); }
const char* cuda_error_name(int) { return "cudaErrorInsufficientDriver"; }
const char* cuda_error_text(int) { return "this build of planq has no CUDA"; }
DeviceGuard::DeviceGuard(const Stream& stream) {
  if (stream.backend == Backend::Cuda) status_ = Status::cuda(kNoDriver);
}
DeviceGuard::~DeviceGuard() = default;

#endif

}  // namespace planq
