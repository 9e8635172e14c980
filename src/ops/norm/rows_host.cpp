#include "ops/norm/rows_host.h"

#include <algorithm>
#include <cstddef>

#include "host/simd.h"
#include "host/thread_pool.h"
#include "host/tree_sum.h"
#include "ops/norm/arithmetic.h"

namespace planq::host {

// Types by their index in norm::kTypes.
struct NormLoops {
  void (*widen[3])(const void* from, std::int64_t count, float* to);
  void (*narrow[3])(const float* from, std::int64_t count, void* to);
  void (*add_elements)(const float* other, std::int64_t count, float* x);
  void (*add_number)(float number, std::int64_t count, float* x);
  void (*square)(float mean, std::int64_t count, float* x);
  void (*normalize)(float mean, float factor, std::int64_t count, float* x);
  void (*multiply)(const float* weight, std::int64_t count, float* x);
  void (*multiply_add)(const float* weight, const float* bias, std::int64_t count, float* x);
};

}  // namespace planq::host

#define PLANQ_LOOPS "ops/norm/rows_loops.h"
#include "host/instruction_sets.h"

namespace planq::host {
namespace {

using norm::Norm;
using std::int64_t;

constexpr int64_t kLeaf = math::kSumLeaf;
constexpr int64_t kMostLeaves = norm::kMaxLength / kLeaf;
// The fewest elements that are worth waking a thread for.
constexpr int64_t kGrain = 16384;

const NormLoops& norm_loops() {
#if PLANQ_SIMD_X86
  static const Level level = detect_level();
  if (level == Level::Avx512) return avx512::kNormLoops;
  if (level == Level::Avx2) return avx2::kNormLoops;
#endif
  return baseline::kNormLoops;
}

// Columns of one tensor: where a row begins, and how its elements become floats and back.
struct Columns {
  std::byte* first = nullptr;  // null: there is no such tensor
  std::size_t type = 0;        // in norm::kTypes

  Columns() = default;
  Columns(const OperandView* view, DType dtype, int64_t offset = 0) {
    if (!view) return;
    type = static_cast<std::size_t>(std::find(norm::kTypes.begin(), norm::kTypes.end(), dtype) -
                                    norm::kTypes.begin());
    first = static_cast<std::byte*>(view->data) + offset * size();
  }
  int64_t size() const { return norm::kTypes[type] == DType::Float32 ? 4 : 2; }
  void read(int64_t column, int64_t count, float* to) const {
    norm_loops().widen[type](first + column * size(), count, to);
  }
  void write(const float* from, int64_t column, int64_t count) const {
    norm_loops().narrow[type](from, count, first + column * size());
  }
};

class Row {
 public:
  Row(const Norm& norm, DType input_dtype, float eps, int64_t row)
      : norm_(norm), loops_(norm_loops()), eps_(eps), length_(norm.length()), divisor_(length_) {
    const ElementOffsets at = norm.layout.rows.offsets(row);
    input_ = Columns(norm.input, input_dtype, at.at[norm::kInputPlace]);
    residual_ = Columns(norm.residual, norm.residual_dtype, at.at[norm::kResidualPlace]);
    output_ = Columns(norm.output, norm.output_dtype, at.at[norm::kOutputPlace]);
    weight_ = Columns(norm.weight, norm.weight_dtype);
    bias_ = Columns(norm.bias, norm.bias_dtype);
    read_ = residual_.first ? residual_ : input_;
  }

  void normalize() const {
    if (residual_.first) each_leaf([&](int64_t at, int64_t count) { add_residual(at, count); });
    const float mean = norm_.centred ? divisor_.mean(sum([](int64_t, float*) {})) : 0.0f;
    const float squares = sum([&](int64_t count, float* x) { loops_.square(mean, count, x); });
    const float factor = math::norm_factor(squares, divisor_, eps_);
    each_leaf([&](int64_t at, int64_t count) { write_leaf(at, count, mean, factor); });
  }

 private:
  template <class Visit>
  void each_leaf(const Visit& visit) const {
    for (int64_t at = 0; at < length_; at += kLeaf) visit(at, std::min(kLeaf, length_ - at));
  }

  // The sum of what make_terms(count, elements) makes of each leaf's elements.
  template <class MakeTerms>
  float sum(const MakeTerms& make_terms) const {
    float sums[kMostLeaves], terms[kLeaf];
    each_leaf([&](int64_t at, int64_t count) {
      read_.read(at, count, terms);
      make_terms(count, terms);
      sums[at / kLeaf] = tree_sum_over(terms, count);
    });
    return math::filled_sum(tree_sum_over(sums, (length_ + kLeaf - 1) / kLeaf), length_);
  }

  void add_residual(int64_t at, int64_t count) const {
    float x[kLeaf], other[kLeaf];
    input_.read(at, count, x);
    residual_.read(at, count, other);
    loops_.add_elements(other, count, x);
    residual_.write(x, at, count);
  }

  void write_leaf(int64_t at, int64_t count, float mean, float factor) const {
    float x[kLeaf], other[kLeaf], bias[kLeaf];
    read_.read(at, count, x);
    loops_.normalize(mean, factor, count, x);
    if (norm_.round_before_weight) {
      loops_.narrow[input_.type](x, count, other);
      loops_.widen[input_.type](other, count, x);
    }
    weight_.read(at, count, other);
    loops_.add_number(norm_.weight_offset, count, other);
    if (bias_.first) {
      bias_.read(at, count, bias);
      loops_.multiply_add(other, bias, count, x);
    } else {
      loops_.multiply(other, count, x);
    }
    output_.write(x, at, count);
  }

  const Norm& norm_;
  const NormLoops& loops_;
  float eps_;
  int64_t length_;
  math::Length divisor_;
  Columns input_, residual_, output_, weight_, bias_, read_;
};

}  // namespace

void normalize_rows(const Norm& norm, DType input_dtype, int threads) {
  const float eps = norm.eps.get();
  const int64_t grain = std::max<int64_t>(kGrain / std::max<int64_t>(norm.length(), 1), 1);
  parallel_for(threads, norm.rows, grain, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) Row(norm, input_dtype, eps, row).normalize();
  });
}

}  // namespace planq::host
