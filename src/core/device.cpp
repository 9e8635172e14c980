#include "core/device.h"

#include <charconv>
#include <map>
#include <mutex>
#include <system_error>

#include "core/architectures.h"

#if defined(PLANQ_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace planq {
namespace {

// Compute capabilities have two digits and one, or three in all.
constexpr std::int32_t kLargestModel = 999;

}  // namespace

Device host_device() {
  Device device;
  device.name = "host";
  return device;
}

bool modelled_device(const std::string& name, Device& device) {
  struct Model {
    std::int32_t arch, multiprocessors;
    std::size_t shared_memory_per_block, l2_bytes;
  };
  // An architecture that is not listed has the facts of the one before it.
#define PLANQ_MODEL(arch, multiprocessors, threads, shared_memory, l2_megabytes, ...) \
  {arch, multiprocessors, shared_memory, std::size_t{l2_megabytes} << 20},
  static constexpr Model models[] = {PLANQ_GPU_ARCHITECTURES(PLANQ_MODEL)};
#undef PLANQ_MODEL
  std::int32_t arch = 0;
  const char* const last = name.data() + name.size();
  if (!name.starts_with("sm_")) return false;
  const auto [end, error] = std::from_chars(name.data() + 3, last, arch);
  if (error != std::errc() || end != last || arch < models[0].arch || arch > kLargestModel)
    return false;
  const Model* model = models;
  for (const Model& candidate : models)
    if (candidate.arch <= arch) model = &candidate;
  device = {Backend::Cuda,   0,   arch, model->multiprocessors, model->shared_memory_per_block,
            model->l2_bytes, name};
  return true;
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

namespace {

Status read_device(int index, Device& device) {
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

}  // namespace

// Reading the properties takes longer than a whole selection, and they never change.
Status cuda_device(int index, Device& device) {
  static std::mutex mutex;
  static std::map<int, Device> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(index);
  if (found != known.end()) {
    device = found->second;
    return Status::success();
  }
  const Status status = read_device(index, device);
  if (status.ok()) known.emplace(index, device);
  return status;
}

// A stream that is being captured does not say its device, and to ask would end the capture. Who
// captures it has its device current: a launch fails on any other.
Status cuda_stream_device(void* handle, int& device) {
  const auto stream = static_cast<cudaStream_t>(handle);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(stream, &capture);
  if (error == cudaSuccess)
    error = capture == cudaStreamCaptureStatusNone ? cudaStreamGetDevice(stream, &device)
                                                   : cudaGetDevice(&device);
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
