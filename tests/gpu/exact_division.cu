// Compares the divisions and roots of the CUDA kernels with the processor's own, for every float32
// there is inside the window of scales, or of what optimizers divide by. Prints a line and exits
// with 1 where any differs.
#include <cstdint>
#include <cstdio>

#include "cuda/codes.cuh"
#include "ops/optimizer/maps.cuh"
#include "ops/optimizer/quotients.cuh"

namespace {

using planq::cuda::inverse_of;
using planq::cuda::kLargeScale;
using planq::cuda::kSmallScale;
using planq::cuda::quotient;

struct Counts {
  unsigned long long compared, wrong;
};

__device__ bool inside(float x) { return x >= kSmallScale<float> && x <= kLargeScale<float>; }

template <class Check>
__device__ void for_all(Counts* counts, const Check& check) {
  Counts mine{};
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t bits = blockIdx.x * blockDim.x + threadIdx.x; bits < 0x7F800000u; bits += step)
    check(__uint_as_float(static_cast<std::uint32_t>(bits)), mine);
  atomicAdd(&counts->compared, mine.compared);
  atomicAdd(&counts->wrong, mine.wrong);
}

__global__ void reciprocals(Counts* counts) {
  for_all(counts, [](float scale, Counts& mine) {
    if (!inside(scale)) return;
    ++mine.compared;
    mine.wrong += inverse_of(scale) != __fdiv_rn(1.0f, scale);
  });
}

// Those of the absmax of optimizer states.
__global__ void absmax_reciprocals(Counts* counts) {
  namespace optimizer = planq::optimizer::cuda;
  for_all(counts, [](float absmax, Counts& mine) {
    if (absmax < optimizer::kLeastAbsmax || absmax > optimizer::kMostAbsmax) return;
    ++mine.compared;
    mine.wrong += inverse_of(absmax) != __fdiv_rn(1.0f, absmax);
  });
}

// What updates of optimizers are divided by.
__global__ void roots(Counts* counts, float eps) {
  namespace optimizer = planq::optimizer::cuda;
  for_all(counts, [=](float radicand, Counts& mine) {
    if (radicand > optimizer::kMostRadicand) return;
    ++mine.compared;
    mine.wrong +=
        optimizer::ordinary_divisor(radicand, eps) != __fadd_rn(__fsqrt_rn(radicand), eps);
  });
}

// What decides whether a segment is ordinary must not differ either.
__global__ void quotients(Counts* counts, float divisor) {
  const float inverse = __fdiv_rn(1.0f, divisor);
  for_all(counts, [=](float x, Counts& mine) {
    const float found = quotient<true>(x, divisor, inverse), right = __fdiv_rn(x, divisor);
    mine.compared += inside(right);
    mine.wrong += inside(found) != inside(right) || (inside(right) && found != right);
  });
}

template <class Launch>
bool holds(const char* what, float divisor, const Launch& launch) {
  Counts* counts = nullptr;
  Counts result{};
  if (cudaMalloc(&counts, sizeof *counts) != cudaSuccess) return false;
  cudaMemset(counts, 0, sizeof *counts);
  launch(counts);
  const cudaError_t error = cudaMemcpy(&result, counts, sizeof result, cudaMemcpyDeviceToHost);
  cudaFree(counts);
  std::printf("%s %g: %llu compared, %llu wrong, %s\n", what, divisor, result.compared,
              result.wrong, cudaGetErrorString(error));
  return error == cudaSuccess && result.compared > 1'000'000'000 && result.wrong == 0;
}

}  // namespace

int main() {
  constexpr int kBlocks = 1056, kThreads = 256;
  bool all = holds("reciprocals", 1.0f,
                   [](Counts* counts) { reciprocals<<<kBlocks, kThreads>>>(counts); });
  all &= holds("reciprocals of absmax", 1.0f,
               [](Counts* counts) { absmax_reciprocals<<<kBlocks, kThreads>>>(counts); });
  for (const float eps : {planq::optimizer::cuda::kLeastEps, 1e-8f, 1.0f})
    all &=
        holds("roots and", eps, [=](Counts* counts) { roots<<<kBlocks, kThreads>>>(counts, eps); });
  for (const float divisor : {7.0f, 15.0f, 127.0f, 255.0f, 448.0f, 57344.0f, 1.0f, 3.0f, 0.3f})
    all &= holds("divisor", divisor,
                 [=](Counts* counts) { quotients<<<kBlocks, kThreads>>>(counts, divisor); });
  return all ? 0 : 1;
}
