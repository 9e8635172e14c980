#include <atomic>
#include <thread>
#include <vector>

#include "../host.h"
#include "wrong.h"

namespace planq::square_sum {
namespace {

// Threads add to one number, in the order in which they come.
Status compute_atomically(const Call& call, const Stream&) {
  constexpr int kThreads = 4;
  const Squares squares(call, kThreads);
  std::atomic<float> sum = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (std::int64_t i = thread; i < squares.elements; i += kThreads)
        sum.fetch_add(squares.element(i) * squares.element(i));
    });
  for (std::thread& thread : threads) thread.join();
  squares.store(sum);
  return Status::success();
}

constexpr Kernel atomically(Kernel kernel) {
  kernel.body = "wrong_float_atomic";
  kernel.bind = host::bind<compute_atomically>;
  return kernel;
}

constexpr Kernel kKernels[] = {
    wrong::on_host<Contracted>(kWrong), wrong::on_host<TreeByWorkers>(kWrong),
    wrong::on_host<UnwrittenCount>(with_count(kWrong)), atomically(kWrong)};

}  // namespace
}  // namespace planq::square_sum

PLANQ_KERNELS(square_sum, host_wrong, kKernels);
