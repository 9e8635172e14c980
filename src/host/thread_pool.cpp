#include "host/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <system_error>
#include <thread>

#include "host/simd.h"

namespace planq::host {
namespace {

// Pieces per thread: enough that a core that is busy elsewhere does not hold up the loop.
constexpr std::int64_t kPiecesPerThread = 4;
// How often a thread polls for work before it sleeps. That is about as long as the pause between
// the two passes of a kernel, and too short to keep a core from other programs.
constexpr int kSpins = 2000;

// What helpers poll, in one word: the number of the job, whether helpers may still enter it, how
// many of them may, and how many are inside. Numbers wrap around. A helper that sleeps until a
// number comes again takes the new job for the old one, and leaves it to the others.
using Word = std::uint32_t;
constexpr Word kInside = 0x1FF;
constexpr int kLimitShift = 9;
constexpr Word kOpen = Word{1} << 18;
constexpr int kNumberShift = 19;
static_assert(kMaxThreads <= kInside);

constexpr Word number_of(Word word) { return word >> kNumberShift; }
constexpr int limit_of(Word word) { return static_cast<int>(word >> kLimitShift & kInside); }

struct Job {
  LoopBody body = nullptr;
  const void* context = nullptr;
  std::int64_t count = 0;
  std::int64_t piece = 0;
};

// Never destroyed: sleeping threads refer to it until the process ends.
struct Pool {
  std::atomic<bool> taken{false};
  std::atomic<Word> word{0};
  std::atomic<std::int64_t> next{0};
  Job job;
  int started = 0;
};

Pool& pool() {
  static Pool* const instance = new Pool;
  return *instance;
}

void work(Pool& shared) {
  const StrictFloat strict;
  const Job job = shared.job;
  for (;;) {
    const std::int64_t first = shared.next.fetch_add(job.piece, std::memory_order_relaxed);
    if (first >= job.count) return;
    job.body(job.context, first, std::min(first + job.piece, job.count));
  }
}

// Enters an open job that this helper has not seen; false when it closed meanwhile.
bool enter(Pool& shared, Word seen) {
  return shared.word.compare_exchange_strong(seen, seen + 1, std::memory_order_acquire);
}

void leave(Pool& shared) {
  const Word before = shared.word.fetch_sub(1, std::memory_order_release);
  if ((before & kInside) == 1 && !(before & kOpen)) shared.word.notify_all();
}

void help(int index) {
  Pool& shared = pool();
  Word done = 0;
  for (int idle = 0;;) {
    const Word now = shared.word.load(std::memory_order_acquire);
    if ((now & kOpen) && number_of(now) != done) {
      if (index < limit_of(now)) {
        if (!enter(shared, now)) continue;
        work(shared);
        leave(shared);
      }
      done = number_of(now);
      idle = 0;
    } else if (++idle < kSpins) {
      relax();
    } else {
      shared.word.wait(now, std::memory_order_acquire);
      idle = 0;
    }
  }
}

// Starts missing helpers with all signals blocked, so that the program's own threads receive its
// signals. Where the system refuses a thread, the loop runs on those that exist.
void start_helpers(Pool& shared, int wanted) {
  if (shared.started >= wanted) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (; shared.started < wanted; ++shared.started) std::thread(help, shared.started).detach();
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// A forked child has none of the threads, and the pool may have been in use when it was copied.
void forget_helpers() { new (&pool()) Pool; }

void run_shared(Pool& shared, const Job& job, int helpers) {
  shared.job = job;
  shared.next.store(0, std::memory_order_relaxed);
  const Word number = number_of(shared.word.load(std::memory_order_relaxed)) + 1;
  const Word limit = static_cast<Word>(helpers) << kLimitShift;
  shared.word.store(number << kNumberShift | kOpen | limit, std::memory_order_release);
  shared.word.notify_all();
  work(shared);
  Word now = shared.word.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int spins = 0; now & kInside; ++spins) {
    if (spins < kSpins) {
      relax();
    } else {
      shared.word.wait(now, std::memory_order_acquire);
    }
    now = shared.word.load(std::memory_order_acquire);
  }
}

}  // namespace

void parallel_loop(int threads, std::int64_t count, std::int64_t grain, LoopBody body,
                   const void* context) {
  if (count <= 0) return;
  const std::int64_t wanted =
      std::min<std::int64_t>(std::min(threads, kMaxThreads), (count + grain - 1) / grain);
  Pool& shared = pool();
  if (wanted <= 1 || shared.taken.exchange(true, std::memory_order_acquire)) {
    body(context, 0, count);
    return;
  }
  static const int registered = pthread_atfork(nullptr, nullptr, forget_helpers);
  static_cast<void>(registered);
  const int helpers = static_cast<int>(wanted) - 1;
  start_helpers(shared, helpers);
  const std::int64_t pieces = wanted * kPiecesPerThread;
  const std::int64_t piece = std::max(grain, (count + pieces - 1) / pieces);
  run_shared(shared, {body, context, count, piece}, std::min(helpers, shared.started));
  shared.taken.store(false, std::memory_order_release);
}

}  // namespace planq::host
