// The elementary functions on a GPU, for ctypes. Threads of a process may call at the same time.
#include <cstdint>
#include <iterator>

#include "math/formats.h"
#include "math/functions.h"

namespace {

using namespace planq;

constexpr int kThreads = 256;

struct SinTurn {
  static __device__ float of(std::uint32_t phase) { return math::sin_turn(phase); }
};
struct CosTurn {
  static __device__ float of(std::uint32_t phase) { return math::cos_turn(phase); }
};
template <math::Function kFunction>
struct Value {
  static __device__ float of(std::uint32_t bits) {
    return math::value_of<kFunction>(math::bit_cast<float>(bits));
  }
};

// Writes what is stored of the results over the bits of the inputs.
template <class F>
__global__ void apply_all(std::uint32_t* words, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) words[i] = math::bit_cast<std::uint32_t>(math::narrow<float>(F::of(words[i])));
}

using Kernel = void (*)(std::uint32_t*, std::int64_t);
struct Entry {
  const char* name;
  Kernel kernel;
};
const Entry kEntries[] = {
#define ENTRY(enumerator, name, function) {name, apply_all<Value<math::Function::enumerator>>},
    PLANQ_FUNCTIONS(ENTRY)
#undef ENTRY
        {"sin_turn", apply_all<SinTurn>},
    {"cos_turn", apply_all<CosTurn>},
};

// Of every d from 1 to 2^30.
constexpr std::uint32_t kFirst = 0x3F800000u, kLast = 0x4E800000u;
__global__ void compare_reciprocals(unsigned long long* wrong) {
  const std::uint32_t step = gridDim.x * kThreads;
  for (std::uint32_t bits = kFirst + blockIdx.x * kThreads + threadIdx.x; bits <= kLast;
       bits += step) {
    const float d = math::bit_cast<float>(bits);
    if (math::detail::reciprocal(d) != __frcp_rn(d)) atomicAdd(wrong, 1ull);
  }
}

}  // namespace

extern "C" {

// Null behind the last.
const char* function_name(int function) {
  return function < static_cast<int>(std::size(kEntries)) ? kEntries[function].name : nullptr;
}

// A CUDA error, or 0. Each thread of the host has a stream of its own.
int apply(int function, std::uint32_t* words, std::int64_t count) {
  std::uint32_t* device = nullptr;
  const std::size_t bytes = sizeof(std::uint32_t) * count;
  const cudaStream_t stream = cudaStreamPerThread;
  cudaMallocAsync(&device, bytes, stream);
  cudaMemcpyAsync(device, words, bytes, cudaMemcpyHostToDevice, stream);
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  kEntries[function].kernel<<<blocks, kThreads, 0, stream>>>(device, count);
  const cudaError_t launched = cudaGetLastError();
  cudaMemcpyAsync(words, device, bytes, cudaMemcpyDeviceToHost, stream);
  cudaFreeAsync(device, stream);
  const cudaError_t finished = cudaStreamSynchronize(stream);
  return launched != cudaSuccess ? launched : finished;
}

// How many reciprocals differ from the correctly rounded ones, or -1.
std::int64_t wrong_reciprocals() {
  unsigned long long* counter = nullptr;
  unsigned long long wrong = 0;
  if (cudaMalloc(&counter, sizeof wrong) != cudaSuccess) return -1;
  cudaMemset(counter, 0, sizeof wrong);
  compare_reciprocals<<<4096, kThreads>>>(counter);
  const cudaError_t error = cudaMemcpy(&wrong, counter, sizeof wrong, cudaMemcpyDeviceToHost);
  cudaFree(counter);
  return error == cudaSuccess ? static_cast<std::int64_t>(wrong) : -1;
}
}
