// What planq is measured against on a GPU: plain traffic, the bare kernels of the same formula, and
// empty launches. Built on the machine that is measured; every entry point returns a CUDA error.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>

namespace {

__device__ void add(uint4& sum, uint4 v) {
  sum.x ^= v.x;
  sum.y ^= v.y;
  sum.z ^= v.z;
  sum.w ^= v.w;
}

// So rarely true that nothing is written, and the compiler cannot know it.
__device__ bool unlikely(uint4 v) { return (v.x ^ v.y ^ v.z ^ v.w) == 0x9e3779b9u; }

// What is streamed. Vector r of the input of a unit lies `apart` vectors after its vector 0, that
// of the next unit but one block `step` blocks further.
struct Streams {
  const uint4* in;
  uint4* out;
  std::int64_t units, step, apart;
};

// For each unit kReads 16-byte vectors in and kWrites out. A tile of the grid is blockDim.x *
// kUnroll units; a thread's loads are independent of each other, so all of them can be in flight.
template <int kReads, int kWrites, int kUnroll>
__global__ void stream_kernel(Streams streams) {
  const std::int64_t tile = static_cast<std::int64_t>(blockDim.x) * kUnroll;
  for (std::int64_t base = blockIdx.x * tile; base < streams.units; base += gridDim.x * tile) {
    uint4 held[kUnroll][kReads];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t first = base + u * blockDim.x;
      const uint4* source = streams.in + first * streams.step + threadIdx.x;
#pragma unroll
      for (int r = 0; r < kReads; ++r)
        held[u][r] =
            first + threadIdx.x < streams.units ? __ldcs(source + r * streams.apart) : uint4{};
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t first = base + u * blockDim.x;
      uint4 sum = held[u][0];
#pragma unroll
      for (int r = 1; r < kReads; ++r) add(sum, held[u][r]);
      if (kWrites == 0 && unlikely(sum)) *streams.out = sum;
      if (first + threadIdx.x >= streams.units) continue;
#pragma unroll
      for (int w = 0; w < kWrites; ++w)
        __stcs(streams.out + first * kWrites + w * blockDim.x + threadIdx.x, sum);
    }
  }
}

struct Mix {
  int reads, writes;
  void (*unrolled[2])(Streams);
};

template <int kReads, int kWrites>
constexpr Mix mix_of() {
  return {kReads, kWrites, {stream_kernel<kReads, kWrites, 1>, stream_kernel<kReads, kWrites, 2>}};
}

constexpr Mix kMixes[] = {
    mix_of<16, 1>(), mix_of<8, 1>(), mix_of<4, 1>(), mix_of<2, 1>(),  mix_of<1, 1>(),
    mix_of<1, 2>(),  mix_of<1, 4>(), mix_of<1, 8>(), mix_of<1, 16>(), mix_of<8, 0>(),
};

// Fills the cache with clean lines of other memory.
__global__ void evict_kernel(const uint4* in, std::int64_t vectors, unsigned* sink) {
  uint4 sum{};
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step)
    add(sum, in[i]);
  if (unlikely(sum)) *sink = sum.x;
}

// What the bare kernels below make of an element.
enum class Form { Int8, Int4, Float8, UInt8Asymmetric };

struct Factors {
  float inverse;
  unsigned zero_point;
};

template <Form kForm>
__device__ unsigned code(unsigned bits, Factors by) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: the sum's low byte is the rounded product
  const unsigned rounded = __float_as_uint(__fmaf_rn(__uint_as_float(bits), by.inverse, kRound));
  return kForm == Form::UInt8Asymmetric ? rounded + by.zero_point : rounded;
}

// Two bfloat16 values to two codes.
template <Form kForm>
__device__ unsigned pack(unsigned word, Factors by) {
  if constexpr (kForm == Form::Float8) {
    unsigned short codes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
        : "=h"(codes)
        : "f"(__uint_as_float(word & 0xffff0000u) * by.inverse),
          "f"(__uint_as_float(word << 16) * by.inverse));
    return codes;
  } else {
    const unsigned low = code<kForm>(word << 16, by), high = code<kForm>(word & 0xffff0000u, by);
    if constexpr (kForm == Form::Int4) return (low & 15) | (high & 15) << 4;
    return __byte_perm(low, high, 0x40);
  }
}

constexpr int kHeld = 4;  // 16-byte vectors that a thread keeps in registers

// The largest |x|, or the range of x as an order-preserving key and a complemented one.
template <Form kForm>
struct Peaks {
  unsigned high = 0, low = 0;

  __device__ void add(unsigned word) {
    if constexpr (kForm == Form::UInt8Asymmetric) {
      const unsigned key = word ^ (__vcmplts2(word, 0) | 0x80008000u);
      high = __vmaxu2(high, key);
      low = __vmaxu2(low, ~key);
    } else {
      high = __vmaxu2(high, word & 0x7fff7fffu);
    }
  }
  __device__ static unsigned over_block(unsigned pair, unsigned* partial) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned largest = __reduce_max_sync(~0u, max(pair & 0xffffu, pair >> 16));
    if (lane == 0) partial[warp] = largest;
    __syncthreads();
    return __reduce_max_sync(~0u, lane < blockDim.x / 32 ? partial[lane] : 0u);
  }
};

__device__ float of_key(unsigned key) {
  return __uint_as_float((key & 0x8000u ? key ^ 0x8000u : ~key & 0xffffu) << 16);
}

// The bare one-pass kernels: one block a row, the row in registers, 16-byte loads, a multiplication
// by the inverse of the scale; no checks, no exact division, no special values, no strides.
template <Form kForm>
__global__ void one_pass_kernel(const uint4* __restrict__ in, unsigned char* __restrict__ out,
                                float* __restrict__ scale, unsigned* __restrict__ zero_point,
                                int vectors) {
  __shared__ unsigned partial[2][32];
  constexpr int kBytes = kForm == Form::Int4 ? 4 : 8;
  const uint4* row = in + static_cast<std::int64_t>(blockIdx.x) * vectors;
  unsigned char* codes = out + static_cast<std::int64_t>(blockIdx.x) * vectors * kBytes;
  uint4 held[kHeld];
  Peaks<kForm> peaks;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int at = j * blockDim.x + threadIdx.x;
    held[j] = at < vectors ? __ldcs(row + at) : uint4{};
  }
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    peaks.add(held[j].x);
    peaks.add(held[j].y);
    peaks.add(held[j].z);
    peaks.add(held[j].w);
  }
  constexpr float kSteps = kForm == Form::Int4              ? 7.0f
                           : kForm == Form::Float8          ? 448.0f
                           : kForm == Form::UInt8Asymmetric ? 255.0f
                                                            : 127.0f;
  const unsigned high = peaks.over_block(peaks.high, partial[0]);
  float span = __uint_as_float(high << 16);
  Factors by{};
  if constexpr (kForm == Form::UInt8Asymmetric) {
    const unsigned low = peaks.over_block(peaks.low, partial[1]);
    const float smallest = fminf(of_key(~low & 0xffffu), 0.0f);
    span = fmaxf(of_key(high), 0.0f) - smallest;
    by.inverse = kSteps / span;
    by.zero_point = static_cast<unsigned>(__float2int_rn(-smallest * by.inverse));
    if (threadIdx.x == 0) zero_point[blockIdx.x] = by.zero_point;
  } else {
    by.inverse = kSteps / span;
  }
  if (threadIdx.x == 0) scale[blockIdx.x] = span / kSteps;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int at = j * blockDim.x + threadIdx.x;
    const unsigned a = pack<kForm>(held[j].x, by), b = pack<kForm>(held[j].y, by);
    const unsigned c = pack<kForm>(held[j].z, by), d = pack<kForm>(held[j].w, by);
    if (at >= vectors) continue;
    if constexpr (kForm == Form::Int4)
      __stcs(reinterpret_cast<unsigned*>(codes) + at,
             __byte_perm(__byte_perm(a, b, 0x40), __byte_perm(c, d, 0x40), 0x5410));
    else
      __stcs(reinterpret_cast<uint2*>(codes) + at,
             uint2{__byte_perm(a, b, 0x5410), __byte_perm(c, d, 0x5410)});
  }
}

__device__ float widen(std::uint16_t bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

// The two-pass kernel that libraries start with: 256 threads a row, scalar loads, two reads.
__global__ void two_pass_kernel(const std::uint16_t* in, std::int8_t* out, float* scale,
                                std::int64_t columns) {
  __shared__ float partial[256];
  const std::uint16_t* row = in + blockIdx.x * columns;
  float largest = 0.0f;
  for (std::int64_t i = threadIdx.x; i < columns; i += 256)
    largest = fmaxf(largest, fabsf(widen(row[i])));
  partial[threadIdx.x] = largest;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half)
      partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + half]);
    __syncthreads();
  }
  const float step = partial[0] > 0.0f ? partial[0] / 127.0f : 1.0f;
  const float inverse = 1.0f / step;
  for (std::int64_t i = threadIdx.x; i < columns; i += 256) {
    const float rounded = rintf(widen(row[i]) * inverse);
    out[blockIdx.x * columns + i] =
        static_cast<std::int8_t>(fminf(fmaxf(rounded, -127.0f), 127.0f));
  }
  if (threadIdx.x == 0) scale[blockIdx.x] = step;
}

__global__ void empty_kernel(const void*, void*, void*, void*) {}

}  // namespace

extern "C" {

// Reads `reads` vectors and writes `writes` for each unit. `together`: the input is one array, else
// `reads` arrays one after the other.
int bench_stream(int reads, int writes, int unroll, int blocks, int threads, int together,
                 const void* in, void* out, std::int64_t units, cudaStream_t stream) {
  const auto* source = static_cast<const uint4*>(in);
  auto* target = static_cast<uint4*>(out);
  const Streams streams = together ? Streams{source, target, units, reads, threads}
                                   : Streams{source, target, units, 1, units};
  for (const Mix& mix : kMixes) {
    if (mix.reads != reads || mix.writes != writes) continue;
    mix.unrolled[unroll - 1]<<<blocks, threads, 0, stream>>>(streams);
    return cudaGetLastError();
  }
  return cudaErrorInvalidValue;
}

int bench_evict(const void* in, std::int64_t vectors, void* sink, cudaStream_t stream) {
  evict_kernel<<<1024, 512, 0, stream>>>(static_cast<const uint4*>(in), vectors,
                                         static_cast<unsigned*>(sink));
  return cudaGetLastError();
}

int bench_one_pass(int form, const void* in, void* out, void* scale, void* zero_point,
                   std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
  const std::int64_t vectors = columns / 8;
  const std::int64_t threads = (vectors + kHeld * 32 - 1) / (kHeld * 32) * 32;
  if (columns % 8 != 0 || threads > 1024) return cudaErrorInvalidValue;
  const auto kernel = form == 0   ? one_pass_kernel<Form::Int8>
                      : form == 1 ? one_pass_kernel<Form::Int4>
                      : form == 2 ? one_pass_kernel<Form::Float8>
                                  : one_pass_kernel<Form::UInt8Asymmetric>;
  kernel<<<static_cast<unsigned>(rows), static_cast<unsigned>(threads), 0, stream>>>(
      static_cast<const uint4*>(in), static_cast<unsigned char*>(out), static_cast<float*>(scale),
      static_cast<unsigned*>(zero_point), static_cast<int>(vectors));
  return cudaGetLastError();
}

int bench_two_pass(const void* in, void* out, void* scale, std::int64_t rows, std::int64_t columns,
                   cudaStream_t stream) {
  two_pass_kernel<<<static_cast<unsigned>(rows), 256, 0, stream>>>(
      static_cast<const std::uint16_t*>(in), static_cast<std::int8_t*>(out),
      static_cast<float*>(scale), columns);
  return cudaGetLastError();
}

// Launches an empty kernel with four pointers `count` times; the time of it all goes to `seconds`.
int bench_bare_launches(int count, cudaStream_t stream, double* seconds) {
  void* pointer = nullptr;
  void* arguments[] = {&pointer, &pointer, &pointer, &pointer};
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i)
    cudaLaunchKernel(reinterpret_cast<const void*>(empty_kernel), dim3(1), dim3(32), arguments, 0,
                     stream);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  *seconds = elapsed.count();
  return cudaGetLastError();
}

}  // extern "C"
