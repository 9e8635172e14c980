// A block of threads on one thread of the host: each runs until it waits at a barrier, then the
// next one does.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};
inline Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

inline constexpr std::size_t kStackBytes = 128 << 10;
inline constexpr unsigned kWarpThreads = 32;

class Block {
 public:
  static Block& current() {
    static Block block;
    return block;
  }

  // Every thread of the block calls the body once.
  void run(unsigned index, unsigned threads, const std::function<void()>& body) {
    body_ = &body;
    blockIdx = {index, 0, 0};
    arrived_.assign(threads / kWarpThreads + 1, 0);
    generation_.assign(arrived_.size(), 0);
    words_.assign(threads, 0);
    threads_.resize(threads);
    stacks_.resize(threads * kStackBytes);
    for (unsigned i = 0; i < threads; ++i) {
      Thread& thread = threads_[i];
      thread.ended = false;
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = stacks_.data() + i * kStackBytes;
      thread.context.uc_stack.ss_size = kStackBytes;
      thread.context.uc_link = &scheduler_;
      makecontext(&thread.context, &Block::begin, 0);
    }
    for (unsigned ended = 0; ended < threads;) {
      moved_ = false;
      ended = 0;
      for (unsigned i = 0; i < threads; ++i) {
        if (!threads_[i].ended) switch_to(i);
        ended += threads_[i].ended ? 1 : 0;
      }
      if (!moved_ && ended < threads) fail("threads wait for each other for ever");
    }
  }

  void wait_for_block() { wait(arrived_.size() - 1, static_cast<unsigned>(threads_.size())); }
  void wait_for_warp() { wait(running_ / kWarpThreads, kWarpThreads); }

  // How many threads of the block say yes.
  int count(bool yes) {
    words_[running_] = yes ? 1 : 0;
    wait_for_block();
    int found = 0;
    for (const std::uint32_t word : words_) found += static_cast<int>(word);
    wait_for_block();
    return found;
  }

  // What a lane of this warp gives, to each that asks for it.
  std::uint32_t exchange(std::uint32_t word, unsigned lane) {
    words_[running_] = word;
    wait_for_warp();
    const std::uint32_t given = words_[running_ / kWarpThreads * kWarpThreads + lane];
    wait_for_warp();
    return given;
  }
  // What all lanes of this warp give.
  void exchange(std::uint32_t word, std::uint32_t (&given)[kWarpThreads]) {
    words_[running_] = word;
    wait_for_warp();
    std::memcpy(given, &words_[running_ / kWarpThreads * kWarpThreads], sizeof given);
    wait_for_warp();
  }
  unsigned lane() const { return running_ % kWarpThreads; }

 private:
  struct Thread {
    ucontext_t context;
    bool ended;
  };

  static void begin() {
    Block& block = current();
    (*block.body_)();
    block.threads_[block.running_].ended = true;
    block.moved_ = true;
  }
  void switch_to(unsigned thread) {
    running_ = thread;
    threadIdx = {thread, 0, 0};
    swapcontext(&scheduler_, &threads_[thread].context);
  }
  void wait(std::size_t barrier, unsigned threads) {
    moved_ = true;
    if (++arrived_[barrier] == threads) {
      arrived_[barrier] = 0;
      ++generation_[barrier];
      return;
    }
    for (const unsigned before = generation_[barrier]; generation_[barrier] == before;)
      swapcontext(&threads_[running_].context, &scheduler_);
  }
  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "block %u: %s\n", blockIdx.x, what);
    std::abort();
  }

  const std::function<void()>* body_ = nullptr;
  ucontext_t scheduler_{};
  unsigned running_ = 0;
  bool moved_ = false;
  std::vector<Thread> threads_;
  std::vector<char> stacks_;
  std::vector<unsigned> arrived_, generation_;  // of each warp's barrier, then of the block's
  std::vector<std::uint32_t> words_;
};

}  // namespace emulated
