#include "ops/position/head_host.h"

#include <algorithm>

#include "host/simd.h"
#include "host/tree_sum.h"
#include "ops/norm/arithmetic.h"

namespace planq::position {

using WidenColumns = void (*)(const void* from, std::int64_t count, float* to);
using TurnColumns = void (*)(const float* cosines, std::int64_t pairs, float* x);
struct HeadLoops {
  WidenColumns widen;
  void (*narrow)(const float* from, std::int64_t count, void* to);
  TurnColumns turn_halves, turn_neighbours;
  void (*square)(const float* x, std::int64_t count, float* squares);
  void (*scale)(float factor, const float* weight, std::int64_t count, float* x);
};

}  // namespace planq::position

#define PLANQ_LOOPS "ops/position/head_loops.h"
#include "host/instruction_sets.h"

namespace planq::position {

namespace {

template <class T>
const HeadLoops& head_loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kHeadLoops<T>;
  if (level == host::Level::Avx2) return host::avx2::kHeadLoops<T>;
#endif
  return host::baseline::kHeadLoops<T>;
}

WidenColumns widen_weights(DType dtype) {
  const int type = dtype == DType::Float16 ? 0 : dtype == DType::BFloat16 ? 1 : 2;
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kWidenWeights[type];
  if (level == host::Level::Avx2) return host::avx2::kWidenWeights[type];
#endif
  return host::baseline::kWidenWeights[type];
}

}  // namespace

template <class T>
HeadTurner<T>::HeadTurner(const Heads& heads, float eps)
    : heads_(heads), loops_(head_loops<T>()), eps_(eps) {}

template <class T>
void HeadTurner<T>::turn(std::int64_t token, std::int64_t head, T* to) {
  const T* const row = heads_.row<T>(token, head);
  const std::int64_t position = heads_.position(token);
  if (!heads_.has(position)) {
    std::fill_n(to, heads_.columns, math::narrow<T>(math::canonical_nan<float>()));
    return;
  }
  const void* const weight = heads_.weight(head);
  const std::int64_t columns = weight ? heads_.columns : heads_.rotary;
  loops_.widen(row, columns, x_);
  if (to != row) std::copy(row + columns, row + heads_.columns, to + columns);
  if (weight) normalize(weight, to);
  const auto turn = heads_.is_interleaved ? loops_.turn_neighbours : loops_.turn_halves;
  turn(heads_.cosines(position), heads_.rotary / 2, x_);
  loops_.narrow(x_, columns, to);
}

// The norm's results are rounded to the type of the elements, which `to` takes for a moment.
template <class T>
void HeadTurner<T>::normalize(const void* weight, T* to) {
  const std::int64_t columns = heads_.columns;
  loops_.square(x_, columns, other_);
  const float squares = host::tree_sum_over(other_, columns);
  widen_weights(heads_.weight_dtype)(weight, columns, other_);
  loops_.scale(math::norm_factor(squares, heads_.length, eps_), other_, columns, x_);
  loops_.narrow(x_, columns, to);
  loops_.widen(to, columns, x_);
}

template class HeadTurner<math::Half>;
template class HeadTurner<math::Bfloat16>;
template class HeadTurner<float>;

}  // namespace planq::position
