// The traffic of a host kernel and nothing else: every value read once, one byte written for each,
// by a loop that the compiler vectorises for the present processor.
#include <cstdint>
#include <thread>
#include <vector>

namespace {

template <class Value>
void narrow(const Value* __restrict in, std::uint8_t* __restrict out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::uint8_t>(in[i]);
}

template <class Value>
void narrow_on(int threads, const void* in, std::uint8_t* out, std::int64_t count) {
  const auto* values = static_cast<const Value*>(in);
  std::vector<std::thread> others;
  for (int i = 0; i < threads; ++i) {
    const std::int64_t begin = count * i / threads, end = count * (i + 1) / threads;
    const auto part = [=] { narrow(values + begin, out + begin, end - begin); };
    if (i + 1 < threads)
      others.emplace_back(part);
    else
      part();
  }
  for (std::thread& other : others) other.join();
}

}  // namespace

// Reads `reads` bytes for each of `count` bytes that it writes. Answers 0, or 1 for another mix.
extern "C" int bench_copy_loop(int reads, int threads, const void* in, void* out,
                               std::int64_t count) {
  auto* bytes = static_cast<std::uint8_t*>(out);
  switch (reads) {
    case 1:
      narrow_on<std::uint8_t>(threads, in, bytes, count);
      return 0;
    case 2:
      narrow_on<std::uint16_t>(threads, in, bytes, count);
      return 0;
    case 4:
      narrow_on<std::uint32_t>(threads, in, bytes, count);
      return 0;
    case 8:
      narrow_on<std::uint64_t>(threads, in, bytes, count);
      return 0;
    default:
      return 1;
  }
}
