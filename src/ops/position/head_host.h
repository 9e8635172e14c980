// Heads of queries and keys on the host, one after another.
#pragma once

#include <cstdint>

#include "math/formats.h"
#include "ops/position/heads.h"

namespace planq::position {

struct HeadLoops;

// Reads heads, normalises them and turns them. T: Half, Bfloat16 or float.
template <class T>
class HeadTurner {
 public:
  HeadTurner(const Heads& heads, float eps);

  // Writes all columns of a head that is turned to `to`: its own row, or other memory.
  void turn(std::int64_t token, std::int64_t head, T* to);

 private:
  void normalize(const void* weight, T* to);

  const Heads& heads_;
  const HeadLoops& loops_;
  float eps_;
  float x_[kMostColumns], other_[kMostColumns];
};

}  // namespace planq::position
