// moe_permute on the host: a counting sort that uses the offsets as its counters, then rows are
// moved by all threads.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "host/bind.h"
#include "host/thread_pool.h"
#include "ops/routing/moe_permute/desc.h"

namespace planq::moe_permute {
namespace {

using std::int32_t;
using std::int64_t;

// Bytes that are worth waking a thread for.
constexpr int64_t kGrain = 1 << 16;

class Permutation {
 public:
  explicit Permutation(const Call& call)
      : fields_(call.fields<Fields>()),
        operands_(call.operands),
        size_(storage_bytes(fields_.input_dtype)),
        outputs_(fields_.top_k, operands_[kOutput], 1) {}

  // Counts the rows of each expert, and gives every pair its row.
  void place() const {
    auto* const offset = static_cast<int32_t*>(operands_[kExpertOffset].data);
    std::fill_n(offset, fields_.experts + 1, 0);
    for (int64_t token = 0; token < tokens(); ++token)
      for (int64_t rank = 0; rank < fields_.top_k; ++rank) ++offset[key(token, rank)];
    int32_t before = 0;
    for (int64_t expert = 0; expert <= fields_.experts; ++expert) {
      const int32_t own = offset[expert];
      offset[expert] = before;
      before += own;
    }
    for (int64_t token = 0; token < tokens(); ++token)
      for (int64_t rank = 0; rank < fields_.top_k; ++rank) {
        const std::uint32_t own = key(token, rank);
        *at<int32_t>(kDestination, token, rank) =
            own < fields_.experts ? offset[own]++ : routing::kNoRow;
      }
    // Placing the rows has advanced each offset to the next one's value.
    std::copy_backward(offset, offset + fields_.experts, offset + fields_.experts + 1);
    offset[0] = 0;
  }

  void move(int threads) const {
    const int64_t pairs = tokens() * fields_.top_k, bytes = std::max<int64_t>(row_bytes(), 1);
    const int64_t grain = std::max<int64_t>(kGrain / bytes, 1);
    host::parallel_for(threads, pairs, grain, [&](int64_t first, int64_t last) {
      for (int64_t pair = first; pair < last; ++pair)
        move_pair(pair / fields_.top_k, pair % fields_.top_k);
    });
    const int64_t taken = static_cast<const int32_t*>(operands_[kExpertOffset].data)[experts()];
    host::parallel_for(threads, pairs - taken, grain, [&](int64_t first, int64_t last) {
      for (int64_t row = taken + first; row < taken + last; ++row) clear_row(row);
    });
  }

 private:
  int64_t tokens() const { return fields_.input_shape[0]; }
  std::size_t experts() const { return static_cast<std::size_t>(fields_.experts); }
  int64_t row_bytes() const { return fields_.input_shape[1] * size_; }
  bool has_scales() const { return fields_.scale_dtype != DType::Unset; }

  // Of operands (tokens, top_k).
  template <class E>
  E* at(Operand operand, int64_t token, int64_t rank) const {
    return static_cast<E*>(operands_[operand].data) + token * operands_[operand].strides[0] + rank;
  }
  std::uint32_t key(int64_t token, int64_t rank) const {
    return key_of(*at<int32_t>(kExpertIndex, token, rank),
                  static_cast<std::uint32_t>(fields_.experts));
  }
  std::byte* output_row(int64_t row) const {
    return static_cast<std::byte*>(operands_[kOutput].data) + outputs_.offset(row) * size_;
  }
  // The bits of a scale.
  std::uint32_t& permuted_scale(int64_t row) const {
    return *at<std::uint32_t>(kPermutedScale, row / fields_.top_k, row % fields_.top_k);
  }

  void move_pair(int64_t token, int64_t rank) const {
    const int32_t row = *at<int32_t>(kDestination, token, rank);
    if (row == routing::kNoRow) return;
    if (row_bytes() > 0)
      std::memcpy(output_row(row),
                  static_cast<const std::byte*>(operands_[kInput].data) +
                      token * operands_[kInput].strides[0] * size_,
                  static_cast<std::size_t>(row_bytes()));
    if (has_scales())
      permuted_scale(row) = static_cast<const std::uint32_t*>(operands_[kScale].data)[token];
  }
  void clear_row(int64_t row) const {
    if (row_bytes() > 0) std::memset(output_row(row), 0, static_cast<std::size_t>(row_bytes()));
    if (has_scales()) permuted_scale(row) = 0;
  }

  const Fields& fields_;
  const Operands& operands_;
  const int64_t size_;
  const routing::PairRows outputs_;
};

Status compute(const Call& call, const Stream& stream) {
  const Permutation permutation(call);
  permutation.place();
  permutation.move(stream.threads);
  return Status::success();
}

Reason accept(const Descriptor&, const Device&) { return Reason::accept(); }

constexpr Kernel kKernels[] = {{.op = "moe_permute",
                                .body = "counting_sort",
                                .revision = 1,
                                .backend = Backend::Host,
                                .arch = {},
                                .rank = 0,
                                .guarantee = kGuarantee,
                                .rejects = accept,
                                .workspace = no_workspace,
                                .prepare = nothing_to_prepare,
                                .bind = host::bind<compute>}};

}  // namespace
}  // namespace planq::moe_permute

PLANQ_KERNELS(moe_permute, host, kKernels);
