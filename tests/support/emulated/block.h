// A block of threads on one thread of the host: each runs until it waits at a barrier, then the
// next one does that need not wait. Contexts begin threads; jumps go from one to another, because
// they leave the mask of signals alone, which takes a call of the system. A thread that has ended
// waits for the next block, and goes on there.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};
inline Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

inline constexpr std::size_t kStackBytes = 128 << 10;
inline constexpr unsigned kWarpThreads = 32;
inline constexpr unsigned kMostWords = 6;  // that a lane gives at once
inline constexpr unsigned kNames = 16;     // of barriers of some threads of a block

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
    arrived_.assign(threads / kWarpThreads + 1 + kNames, 0);
    generation_.assign(arrived_.size(), 0);
    words_.assign(threads, {});
    while (threads_.size() < threads) threads_.push_back(std::make_unique<Thread>());
    for (unsigned i = 0; i < threads; ++i) {
      if (threads_[i]->state == State::Ended) threads_[i]->state = State::Ready;
    }
    for (unsigned ended = 0; ended < threads;) {
      moved_ = false;
      ended = 0;
      for (unsigned i = 0; i < threads; ++i) {
        if (goes_on(*threads_[i])) switch_to(i);
        ended += threads_[i]->state == State::Ended ? 1 : 0;
      }
      if (!moved_ && ended < threads) fail("threads wait for each other for ever");
    }
  }

  void wait_for_block() {
    wait(arrived_.size() - 1 - kNames, static_cast<unsigned>(words_.size()));
  }
  // Of so many threads, which use one name.
  void wait_for_named(unsigned name, unsigned threads) {
    wait(arrived_.size() - kNames + name, threads);
  }
  // Whether one of these threads, which are the first of the block, says yes.
  bool any_named(unsigned name, unsigned threads, bool yes) {
    words_[running_][0] = yes ? 1 : 0;
    wait_for_named(name, threads);
    bool found = false;
    for (unsigned i = 0; i < threads; ++i) found = found || words_[i][0] != 0;
    wait_for_named(name, threads);
    return found;
  }
  void wait_for_warp() { wait(running_ / kWarpThreads, kWarpThreads); }

  // How many threads of the block say yes.
  int count(bool yes) {
    words_[running_][0] = yes ? 1 : 0;
    wait_for_block();
    int found = 0;
    for (const Words& words : words_) found += static_cast<int>(words[0]);
    wait_for_block();
    return found;
  }

  // What a lane of this warp gives, to each that asks for it.
  std::uint32_t exchange(std::uint32_t word, unsigned lane) {
    words_[running_][0] = word;
    wait_for_warp();
    const std::uint32_t given = words_[running_ / kWarpThreads * kWarpThreads + lane][0];
    wait_for_warp();
    return given;
  }
  // What all lanes of this warp give: so many words each.
  template <unsigned kWords>
  void exchange(const std::uint32_t (&own)[kWords], std::uint32_t (&given)[kWords][kWarpThreads]) {
    static_assert(kWords <= kMostWords);
    std::copy(own, own + kWords, words_[running_].begin());
    wait_for_warp();
    const Words* const warp = &words_[running_ / kWarpThreads * kWarpThreads];
    for (unsigned i = 0; i < kWords; ++i)
      for (unsigned lane = 0; lane < kWarpThreads; ++lane) given[i][lane] = warp[lane][i];
    wait_for_warp();
  }
  // Lets the other threads run.
  void give_way() {
    moved_ = true;
    if (_setjmp(threads_[running_]->place) == 0) _longjmp(scheduler_, 1);
  }
  unsigned lane() const { return running_ % kWarpThreads; }

 private:
  using Words = std::array<std::uint32_t, kMostWords>;
  enum class State { New, Ready, Waiting, Ended };
  struct Thread {
    jmp_buf place;
    State state = State::New;
    std::size_t barrier;  // where it waits
    unsigned generation;  // of that barrier
    std::unique_ptr<char[]> stack;
  };

  // Where a thread begins, and where it runs one block after another.
  static void begin() {
    Block& block = current();
    Thread& thread = *block.threads_[block.running_];
    for (;;) {
      (*block.body_)();
      thread.state = State::Ended;
      block.moved_ = true;
      if (_setjmp(thread.place) == 0) _longjmp(block.scheduler_, 1);
    }
  }
  [[noreturn]] static void begin_on(Thread& thread) {
    thread.stack.reset(new char[kStackBytes]);
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = thread.stack.get();
    context.uc_stack.ss_size = kStackBytes;
    makecontext(&context, &Block::begin, 0);
    setcontext(&context);
    std::abort();
  }
  bool goes_on(const Thread& thread) const {
    if (thread.state == State::Waiting) return generation_[thread.barrier] != thread.generation;
    return thread.state != State::Ended;
  }
  void switch_to(unsigned index) {
    running_ = index;
    threadIdx = {index, 0, 0};
    Thread& thread = *threads_[index];
    if (_setjmp(scheduler_) != 0) return;
    const bool begins = thread.state == State::New;
    thread.state = State::Ready;
    if (begins) begin_on(thread);
    _longjmp(thread.place, 1);
  }
  void wait(std::size_t barrier, unsigned threads) {
    moved_ = true;
    if (++arrived_[barrier] == threads) {
      arrived_[barrier] = 0;
      ++generation_[barrier];
      return;
    }
    Thread& thread = *threads_[running_];
    thread.state = State::Waiting;
    thread.barrier = barrier;
    thread.generation = generation_[barrier];
    if (_setjmp(thread.place) == 0) _longjmp(scheduler_, 1);
  }
  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "block %u: %s\n", blockIdx.x, what);
    std::abort();
  }

  const std::function<void()>* body_ = nullptr;
  jmp_buf scheduler_;
  unsigned running_ = 0;
  bool moved_ = false;
  std::vector<std::unique_ptr<Thread>> threads_;  // as many as the largest block has had
  std::vector<unsigned> arrived_, generation_;    // of each warp's barrier, the block's, names'
  std::vector<Words> words_;
};

}  // namespace emulated
