// Exhaustive over the float32 quotients that the kernels' division could round wrongly.
//
// r = fl(1/s), t = fl(x r), e = fma(-t, s, x), result = fma(e, r, t). The last sum is off by less
// than 2^-22 ulp before it rounds, so only a quotient that close to a midpoint of two floats can
// differ from fl(x/s). With 24-bit integers X and S, X/S = midpoint + c/(2 S) ulp for an integer c,
// which makes X * 2^24 = c or X * 2^25 = c modulo S with |c| <= 8. This program solves both for
// every S and |c| <= 16, and compares every solution with the division of the machine.
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace {

constexpr std::uint32_t kFirst = 1u << 23, kEnd = 1u << 24;
std::uint64_t pairs = 0, wrong = 0;

void compare(std::uint64_t numerator, float s, float r) {
  const float x = static_cast<float>(numerator);
  const float t = x * r;
  const float e = std::fma(-t, s, x);
  ++pairs;
  if (std::fma(e, r, t) != x / s) ++wrong;
}

// 2^-power modulo an odd number.
std::uint64_t inverse_of_power(std::uint32_t odd, int power) {
  std::uint64_t result = 1 % odd, base = odd == 1 ? 0 : (odd + 1ull) / 2;
  for (; power; power >>= 1, base = base * base % odd)
    if (power & 1) result = result * base % odd;
  return result;
}

// All X in [2^23, 2^24) with X * 2^power = c modulo S, for |c| <= 16.
void solve(std::uint32_t divisor, int power, float s, float r) {
  const int twos = __builtin_ctz(divisor);
  const std::uint32_t odd = divisor >> twos;
  const std::uint64_t inverse = inverse_of_power(odd, power - twos);
  for (int c = -16; c <= 16; ++c) {
    if (c == 0 || (c & ((1 << twos) - 1))) continue;
    const std::int64_t reduced = c / (1 << twos) % static_cast<std::int64_t>(odd);
    std::uint64_t x = static_cast<std::uint64_t>(reduced < 0 ? reduced + odd : reduced);
    x = x * inverse % odd;
    if (x < kFirst) x += (kFirst - x + odd - 1) / odd * odd;
    for (; x < kEnd; x += odd) compare(x, s, r);
  }
}

}  // namespace

int main() {
  for (std::uint32_t divisor = kFirst; divisor < kEnd; ++divisor) {
    const float s = static_cast<float>(divisor), r = 1.0f / s;
    solve(divisor, 24, s, r);
    solve(divisor, 25, s, r);
  }
  std::printf("%llu %llu\n", static_cast<unsigned long long>(pairs),
              static_cast<unsigned long long>(wrong));
  return 0;
}
