// The traffic of a host kernel and nothing else: every value read once and written once, in another
// size or the same, by a loop that the compiler vectorises for the present processor.
#include <cstdint>
#include <thread>
#include <vector>

namespace {

template <class In, class Out>
void convert(const In* __restrict in, Out* __restrict out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<Out>(in[i]);
}

template <class In, class Out>
void convert_on(int threads, const void* in, void* out, std::int64_t count) {
  const auto* values = static_cast<const In*>(in);
  auto* results = static_cast<Out*>(out);
  std::vector<std::thread> others;
  for (int i = 0; i < threads; ++i) {
    const std::int64_t begin = count * i / threads, end = count * (i + 1) / threads;
    const auto part = [=] { convert(values + begin, results + begin, end - begin); };
    if (i + 1 < threads)
      others.emplace_back(part);
    else
      part();
  }
  for (std::thread& other : others) other.join();
}

struct Mix {
  int reads, writes;
  void (*run)(int, const void*, void*, std::int64_t);
};

constexpr Mix kMixes[] = {
    {1, 1, convert_on<std::uint8_t, std::uint8_t>},
    {2, 1, convert_on<std::uint16_t, std::uint8_t>},
    {4, 1, convert_on<std::uint32_t, std::uint8_t>},
    {8, 1, convert_on<std::uint64_t, std::uint8_t>},
    {1, 2, convert_on<std::uint8_t, std::uint16_t>},
    {1, 4, convert_on<std::uint8_t, std::uint32_t>},
    {1, 8, convert_on<std::uint8_t, std::uint64_t>},
};

std::uint64_t sum_of(const std::uint64_t* values, std::int64_t count) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += values[i];
  return sum;
}

}  // namespace

// Reads so many bytes, and answers a sum of them.
extern "C" std::uint64_t bench_read_loop(int threads, const void* in, std::int64_t bytes) {
  const auto* values = static_cast<const std::uint64_t*>(in);
  const std::int64_t count = bytes / 8;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
  std::vector<std::thread> others;
  for (int i = 0; i < threads; ++i) {
    const auto part = [=, &sums] {
      const std::int64_t begin = count * i / threads, end = count * (i + 1) / threads;
      sums[static_cast<std::size_t>(i)] = sum_of(values + begin, end - begin);
    };
    if (i + 1 < threads)
      others.emplace_back(part);
    else
      part();
  }
  for (std::thread& other : others) other.join();
  std::uint64_t all = 0;
  for (const std::uint64_t sum : sums) all += sum;
  return all;
}

// Reads and writes so many bytes for each of `count` values. Answers 0, or 1 for another mix.
extern "C" int bench_copy_loop(int reads, int writes, int threads, const void* in, void* out,
                               std::int64_t count) {
  for (const Mix& mix : kMixes) {
    if (mix.reads != reads || mix.writes != writes) continue;
    mix.run(threads, in, out, count);
    return 0;
  }
  return 1;
}
