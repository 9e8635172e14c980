// Starting kernels: launch() with clusters, dependent and cooperative launches, and preload(),
// which loads a kernel before its first launch: a stream capture refuses a launch that has to load.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

#include "core/architectures.h"
#include "core/bound.h"

namespace planq::cuda {

// For extents as large as numbers are.
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }
// The least one that is not smaller than n.
inline std::int64_t power_of_two(std::int64_t n) {
  return static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
}

struct Grid {
  std::int64_t blocks = 1;
  dim3 threads{1};
  int cluster = 1;
  // The kernel may begin before the one before it on the stream has ended, whoever launched that:
  // it waits for it by follow_previous(), or by wait_for_previous() if its own plan launched it.
  bool dependent = false;
  // All blocks run at the same time, so that they can wait for each other.
  bool cooperative = false;
  int shared_bytes = 0;
};

template <class Args>
Status launch_now(void (*kernel)(Args), const Grid& grid, const Args& args, const Stream& stream) {
  cudaLaunchAttribute attributes[3];
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = static_cast<std::size_t>(grid.shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = attributes;
  if (grid.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(grid.cluster);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  }
  if (grid.dependent) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cooperative) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  void* parameters[] = {const_cast<Args*>(&args)};
  const cudaError_t error =
      cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), parameters);
  if (error == cudaSuccess) return Status::success();
  if (error != cudaErrorCooperativeLaunchTooLarge) return Status::cuda(error);
  (void)cudaGetLastError();  // expected here: cleared, so that no later call reports it
  return Status::refuse(error);
}

// One launch, as a bound keeps it.
template <class Args>
struct KernelStep {
  void (*kernel)(Args);
  Grid grid;
  Args args;

  Status launch(const Stream& stream) const { return launch_now(kernel, grid, args, stream); }
};

template <class Args>
Status launch(void (*kernel)(Args), const Grid& grid, const Args& args, Bound& bound) {
  if (const Stream* stream = bound.now()) return launch_now(kernel, grid, args, *stream);
  return bound.add(KernelStep<Args>{kernel, grid, args});
}

// The same for a kernel that a stream with a share of the multiprocessors may refuse;
// `otherwise(bound)` adds what gives the same bits on such a stream.
template <class Args, class Otherwise>
Status launch_or(void (*kernel)(Args), const Grid& grid, const Args& args, Bound& bound,
                 const Otherwise& otherwise) {
  return bound.add_or(KernelStep<Args>{kernel, grid, args}, otherwise);
}

// Which kernels have been loaded on which device. Asking the driver each time would take longer
// than all the rest of a selection.
class Preloaded {
 public:
  static bool has(const void* function, int device) {
    const std::lock_guard lock(mutex());
    return known().contains({function, device});
  }
  static void add(const void* function, int device) {
    const std::lock_guard lock(mutex());
    known().insert({function, device});
  }

 private:
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  static std::set<std::pair<const void*, int>>& known() {
    static std::set<std::pair<const void*, int>> instance;
    return instance;
  }
};

inline cudaError_t preload_function(const void* function, int shared_bytes) {
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (Preloaded::has(function, device)) return cudaSuccess;
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, function);
  if (error == cudaSuccess && shared_bytes > 0)
    error =
        cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error == cudaSuccess) Preloaded::add(function, device);
  return error;
}

// Loads the kernel's module now, so that its first launch does not have to, and allows the shared
// memory that its launches ask for.
template <class Args>
Status preload(void (*kernel)(Args), int shared_bytes = 0) {
  const cudaError_t error = preload_function(reinterpret_cast<const void*>(kernel), shared_bytes);
  return error == cudaSuccess ? Status::success() : Status::cuda(error);
}

// Bytes of 0, in the order of the stream.
struct ClearStep {
  void* data;
  std::size_t bytes;

  Status launch(const Stream& stream) const {
    const auto handle = static_cast<cudaStream_t>(stream.handle);
    const cudaError_t error = cudaMemsetAsync(data, 0, bytes, handle);
    return error == cudaSuccess ? Status::success() : Status::cuda(error);
  }
};
inline Status clear(void* data, std::size_t bytes, Bound& bound) {
  return bound.add(ClearStep{data, bytes});
}

// The number of blocks, each with equally many of `tiles`, that a GPU which runs `slots` blocks at
// a time finishes in the fewest rounds.
inline std::int64_t even_blocks(std::int64_t tiles, std::int64_t slots) {
  const std::int64_t rounds = std::max<std::int64_t>((tiles + slots - 1) / slots, 1);
  return std::max<std::int64_t>((tiles + rounds - 1) / rounds, 1);
}

inline bool aligned_to(const void* address, int bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

// For __launch_bounds__: so many blocks of a multiprocessor, or as many as have room for their
// threads on the architecture that code is compiled for.
constexpr int fitting_blocks([[maybe_unused]] int threads, int blocks) {
#if defined(__CUDA_ARCH__)
  return std::min(blocks, threads_of_multiprocessor(__CUDA_ARCH__ / 10) / threads);
#else
  return blocks;
#endif
}

// Returns from the calling function where the status of `expression` is a failure. A block, so that
// no `else` behind it can be taken for its own.
#define PLANQ_TRY(expression)                                                     \
  {                                                                               \
    if (const ::planq::Status status = (expression); !status.ok()) return status; \
  }

__device__ __forceinline__ void let_dependents_start() {
#if PLANQ_HAS_DEPENDENT_LAUNCHES
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if PLANQ_HAS_DEPENDENT_LAUNCHES
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Of the first kernel of a plan, before it reads or writes anything: what went before may be
// another plan, which has written any of its operands. Lines may be fetched into L2 earlier
// (prefetch_line), nothing else. The next kernel begins after this, so all that it finds is there,
// except what this kernel writes.
__device__ __forceinline__ void follow_previous() {
  wait_for_previous();
  let_dependents_start();
}

}  // namespace planq::cuda
