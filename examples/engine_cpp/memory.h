// Memory that the engine owns, on the host or on a GPU.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(ENGINE_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace engine {

#if defined(ENGINE_CUDA)
inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}
#endif

// Aligned as planq wants a workspace to be; operands may lie anywhere.
class Memory {
 public:
  Memory(std::size_t bytes, bool on_gpu) : bytes_(bytes), on_gpu_(on_gpu) {
    const std::size_t room = (bytes + 256) / 256 * 256;
    if (!on_gpu) data_ = std::aligned_alloc(256, room);
#if defined(ENGINE_CUDA)
    if (on_gpu) check(cudaMalloc(&data_, room));
#endif
    if (!data_) throw std::bad_alloc();
  }
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), on_gpu_(other.on_gpu_) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() {
#if defined(ENGINE_CUDA)
    if (on_gpu_) cudaFree(data_);
#endif
    if (!on_gpu_) std::free(data_);
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  void upload(const std::byte* from) {
    if (!on_gpu_ && bytes_ > 0) std::memcpy(data_, from, bytes_);
#if defined(ENGINE_CUDA)
    if (on_gpu_) check(cudaMemcpy(data_, from, bytes_, cudaMemcpyHostToDevice));
#endif
  }
  // Waits for what runs on the GPU.
  std::vector<std::byte> download() const {
    std::vector<std::byte> copy(bytes_);
    if (!on_gpu_ && bytes_ > 0) std::memcpy(copy.data(), data_, bytes_);
#if defined(ENGINE_CUDA)
    if (on_gpu_) {
      check(cudaDeviceSynchronize());
      check(cudaMemcpy(copy.data(), data_, bytes_, cudaMemcpyDeviceToHost));
    }
#endif
    return copy;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
  bool on_gpu_;
};

}  // namespace engine
