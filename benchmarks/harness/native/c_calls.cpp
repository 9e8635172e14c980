// Calls of planq.h from a compiled loop: what a run and a bound launch cost a program in C.
#include <planq.h>

#include <chrono>
#include <cstdint>

namespace {

// The operands of the no-op operator: 64 by 64 float32 and int8, one scale, one zero point.
struct Operands {
  std::int64_t square[2] = {64, 64}, one[1] = {1};
  planq_tensor tensors[4] = {};
  planq_tensor* pointers[4] = {};
  planq_operand listed[4] = {};

  Operands(void* const* memory, int device_type, int device) {
    constexpr const char* kNames[] = {"input", "output", "scale", "zero_point"};
    constexpr std::uint8_t kCodes[] = {2, 0, 2, 0}, kBits[] = {32, 8, 32, 32};
    for (int i = 0; i < 4; ++i) {
      tensors[i].data = memory[i];
      tensors[i].device = {device_type, device};
      tensors[i].ndim = i < 2 ? 2 : 1;
      tensors[i].dtype = {kCodes[i], kBits[i], 1};
      tensors[i].shape = i < 2 ? square : one;
      pointers[i] = &tensors[i];
      listed[i].name = kNames[i];
      listed[i].tensors = &pointers[i];
      listed[i].count = 1;
    }
  }
};

template <class Call>
planq_code time_calls(int calls, double* seconds, const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i)
    if (const planq_code code = call()) return code;
  *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return PLANQ_OK;
}

}  // namespace

// Seconds for so many runs, or launches of what was bound.
extern "C" int bench_c_calls(const char* descriptor, int cuda, void* handle, int device,
                             void* const* memory, int bound, int calls, double* seconds) {
  const planq_stream stream = cuda ? planq_cuda_stream(handle, device) : planq_host_stream(1);
  const Operands given(memory, cuda ? 2 : 1, device);
  planq_plan plan = 0;
  planq_launch launch = 0;
  planq_code code = planq_select(&stream, descriptor, nullptr, &plan);
  if (!code) code = planq_bind(plan, nullptr, 0, given.listed, 4, &launch);
  if (!code && bound)
    code = time_calls(calls, seconds, [&] { return planq_launch_run(launch, &stream); });
  if (!code && !bound)
    code = time_calls(calls, seconds,
                      [&] { return planq_run(plan, &stream, nullptr, 0, given.listed, 4); });
  planq_launch_release(launch);
  planq_plan_release(plan);
  return code;
}
