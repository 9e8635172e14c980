// The kernels' division with the signs of its terms turned around keeps the sign of a zero, and is
// IEEE division for every gradient in the window that straight_through.cuh states.
//
// t = fl(x r), e = fma(t, s, -x), result = fma(e, -r, t), with r = fl(1/s).
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

std::uint64_t state = 0x9E3779B97F4A7C15u;

std::uint32_t draw() {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<std::uint32_t>(state >> 32);
}
float from_bits(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
float divided(float x, float s) {
  const float r = 1.0f / s, t = x * r;
  return std::fma(std::fma(t, s, -x), -r, t);
}
// A positive float with an exponent in [first, last].
float between(int first, int last) {
  const auto span = static_cast<std::uint32_t>(last - first + 1);
  return std::ldexp(1.0f + static_cast<float>(draw() >> 9) * 0x1p-23f,
                    first + static_cast<int>(draw() % span));
}

}  // namespace

int main() {
  std::uint64_t signs = 0, wrong = 0;
  // Every bfloat16 value over scales of the whole window.
  for (int i = 0; i < 400; ++i) {
    const float s = between(-70, 69);
    for (std::uint32_t high = 0; high < 0x10000u; ++high) {
      const float x = from_bits(high << 16), right = x / s;
      if (!(std::fabs(right) <= 0x1p21f)) continue;
      const float q = divided(x, s);
      ++signs;
      const bool small = std::fabs(right) < 0x1p-20f;
      if (small ? std::signbit(q) != std::signbit(x) || std::fabs(q) > 0x1p-19f
                : bits_of(q) != bits_of(right))
        ++wrong;
    }
  }
  std::uint64_t gradients = 0;
  while (gradients < 20'000'000) {
    const float s = between(-70, 69), x = between(-100, 126) * (draw() & 1 ? 1.0f : -1.0f);
    const float q = divided(x, s);
    if (!(std::fabs(q) >= 0x1p-100f && std::fabs(q) <= 0x1p50f)) continue;
    ++gradients;
    if (bits_of(q) != bits_of(x / s)) ++wrong;
  }
  std::printf("%llu %llu\n", static_cast<unsigned long long>(signs),
              static_cast<unsigned long long>(wrong));
  return 0;
}
