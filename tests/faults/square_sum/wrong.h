// Wrong sums of squares of float32: products meet sums by fma, the tree depends on how many work on
// it, and a count in the workspace is read before anybody has written it.
#pragma once

#include "../sums.h"
#include "ops/statistics/square_sum/desc.h"

namespace planq::square_sum {

struct Squares : wrong::Elements {
  Squares(const Call& call, int workers) : Elements(call, call.fields<Fields>().shape, workers) {}

  // Leaves joined as numbers are counted in binary: sums of equally many elements meet.
  template <class Pair>
  PLANQ_HD float tree(const Pair& pair) const {
    float sums[64];
    int depth = 0;
    for (std::int64_t i = 0; i < elements; i += 2) {
      sums[depth++] = pair(element(i), i + 1 < elements ? element(i + 1) : 0.0f);
      for (std::int64_t done = i / 2 + 1; done % 2 == 0; done /= 2) {
        sums[depth - 2] = sums[depth - 2] + sums[depth - 1];
        --depth;
      }
    }
    float sum = depth ? sums[--depth] : 0.0f;
    while (depth) sum = sums[--depth] + sum;
    return sum;
  }
};

struct Contracted : Squares {
  static constexpr std::string_view kName = "wrong_contracted_fma";
  using Squares::Squares;

  PLANQ_HD void operator()(std::int64_t) const {
    store(tree([](float a, float b) { return math::fused(a, a, b * b); }));
  }
};

struct TreeByWorkers : Squares {
  static constexpr std::string_view kName = "wrong_tree_by_workers";
  using Squares::Squares;

  PLANQ_HD void operator()(std::int64_t) const {
    float sum = 0;
    for (int worker = 0; worker < workers; ++worker) {
      float part = 0;
      for (std::int64_t i = worker; i < elements; i += workers) part += element(i) * element(i);
      sum += part;
    }
    store(sum);
  }
};

struct UnwrittenCount : Squares {
  static constexpr std::string_view kName = "wrong_unwritten_count";
  const std::uint32_t* still_to_come;

  UnwrittenCount(const Call& call, int workers)
      : Squares(call, workers),
        still_to_come(reinterpret_cast<const std::uint32_t*>(call.workspace.data)) {}

  PLANQ_HD void operator()(std::int64_t) const {
    if (*still_to_come == 0) store(tree([](float a, float b) { return a * a + b * b; }));
  }
};

inline std::size_t room_of_count(const Descriptor&, const Device&) { return kWorkspaceAlignment; }

inline Reason rejects_wrong(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  const Reason reason = expect(ReasonKind::DType, "input_dtype", DType::Float32, f.input_dtype);
  return reason.accepted() ? wrong::expect_few(f.shape) : reason;
}

inline constexpr Kernel kWrong = wrong::entry("square_sum", kDTypes<DType::Float32, DType::Float32>,
                                              1, wrong::kPromise<>, rejects_wrong);

constexpr Kernel with_count(Kernel kernel) {
  kernel.workspace = room_of_count;
  return kernel;
}

}  // namespace planq::square_sum
