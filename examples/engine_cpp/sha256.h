// SHA-256 (FIPS 180-4), to compare results with those of another program.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace engine {

class Sha256 {
 public:
  static std::string of(std::span<const std::byte> data) {
    Sha256 hash;
    const std::size_t whole = data.size() / 64 * 64;
    for (std::size_t at = 0; at < whole; at += 64) hash.mix(data.data() + at);
    std::vector<std::byte> tail(data.begin() + static_cast<std::ptrdiff_t>(whole), data.end());
    tail.push_back(std::byte{0x80});
    while (tail.size() % 64 != 56) tail.push_back(std::byte{0});
    const std::uint64_t bits = std::uint64_t{data.size()} * 8;
    for (int shift = 56; shift >= 0; shift -= 8)
      tail.push_back(static_cast<std::byte>(bits >> shift & 0xff));
    for (std::size_t at = 0; at < tail.size(); at += 64) hash.mix(tail.data() + at);
    return hash.text();
  }

 private:
  using Word = std::uint32_t;

  // The first 32 bits of the fraction of a root; exact, because a double has 52.
  static Word fraction(double root) {
    return static_cast<Word>(
        static_cast<std::uint64_t>(std::floor((root - std::floor(root)) * 0x1p32)));
  }
  struct Constants {
    std::array<Word, 64> cube{};
    std::array<Word, 8> square{};
    Constants() {
      std::size_t found = 0;
      for (int number = 2; found < cube.size(); ++number) {
        bool prime = true;
        for (int divisor = 2; divisor * divisor <= number; ++divisor)
          prime = prime && number % divisor != 0;
        if (!prime) continue;
        if (found < square.size()) square[found] = fraction(std::sqrt(number));
        cube[found++] = fraction(std::cbrt(number));
      }
    }
  };
  static const Constants& constants() {
    static const Constants all;
    return all;
  }

  void mix(const std::byte* block) {
    std::array<Word, 64> w{};
    for (std::size_t i = 0; i < 16; ++i)
      for (std::size_t j = 0; j < 4; ++j)
        w[i] = w[i] << 8 | std::to_integer<Word>(block[4 * i + j]);
    for (std::size_t i = 16; i < 64; ++i) {
      const Word low = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      const Word high = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + low + w[i - 7] + high;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < 64; ++i) {
      const Word one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                       ((e & f) ^ (~e & g)) + constants().cube[i] + w[i];
      const Word two =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    const std::array<Word, 8> mixed{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state_[i] += mixed[i];
  }

  std::string text() const {
    std::string digits;
    for (const Word word : state_)
      for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[word >> shift & 15];
    return digits;
  }

  std::array<Word, 8> state_ = constants().square;
};

}  // namespace engine
