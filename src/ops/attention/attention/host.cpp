// attention on the host: threads share rows, which are heads of tokens. Keys are read once for all
// rows that are computed together.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/sku.h"
#include "host/bind.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "math/tensor_core.h"
#include "ops/attention/attention/layout.h"
#include "ops/linear/host/gemm.h"
#include "ops/linear/weight_only/codes.h"

namespace planq::attention {

// Rows that are computed together: they and their sums have to fit in a stack of 64 KB, beside a
// panel. Rows of many columns are fewer.
constexpr int kMostRows = 16, kHeldValues = 2048;
// Columns for which rows have room are whole panels.
constexpr std::int64_t kColumnRoom = 32;
constexpr int rows_of(std::int64_t columns) {
  const std::int64_t room = (columns + kColumnRoom - 1) / kColumnRoom * kColumnRoom;
  return static_cast<int>(std::min<std::int64_t>(kMostRows, kHeldValues / room));
}

// Some heads of some tokens of one sequence: heads of a token are neighbours, and share a key head.
struct Rows {
  const Layout* layout;
  DType cache, output;
  std::int64_t sequence;  // -1: the tokens are of none, and see no keys
  bool lost;              // what is known of the sequence is wrong: outputs are NaN
  std::int64_t token, head;
  int heads, count;  // of each token, of all
  int room;          // how many rows there is room for
};
using AttendRows = void (*)(const Rows& rows);

}  // namespace planq::attention

namespace planq::host {
using attention::kColumnRoom;
using attention::kHeldValues;
using attention::kMostRows;
}  // namespace planq::host

#define PLANQ_LOOPS "ops/attention/attention/loops.h"
#include "host/instruction_sets.h"

namespace planq::attention {
namespace {

using std::int64_t;

// The fewest multiplications that are worth waking a thread for.
constexpr int64_t kGrain = 1 << 16;

template <DType kInput>
AttendRows attend_rows() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::floating::kAttendRows<kInput>;
  if (level == host::Level::Avx2) return host::avx2::floating::kAttendRows<kInput>;
#endif
  return host::baseline::floating::kAttendRows<kInput>;
}

// Tokens that see no answer: all of them where starts are wrong. Else those of sequences that do
// not fit, and those that see a page which the cache lacks.
int64_t count_invalid(const Layout& p, bool starts_are_right) {
  if (!starts_are_right) return p.tokens;
  int64_t invalid = 0;
  for (int64_t sequence = 0; sequence < p.batch; ++sequence) {
    const int64_t first = p.query_start[sequence], end = p.query_start[sequence + 1];
    if (!p.fits(sequence)) {
      invalid += end - first;
      continue;
    }
    if (first == end || p.has(sequence, {0, p.key_length[sequence]})) continue;
    for (int64_t token = first; token < end; ++token)
      invalid += p.has(sequence, p.seen(sequence, token)) ? 0 : 1;
  }
  return invalid;
}

// How the rows of a call are shared out. A share has some tokens, whatever their sequences, and
// some heads of one key head.
class Shares {
 public:
  Shares(const Layout& p, DType cache, DType output)
      : p_(p),
        cache_(cache),
        output_(output),
        right_(p.starts_are_right()),
        room_(rows_of(p.value.columns)),
        heads_(std::min<int64_t>(p.group(), room_)),
        tokens_(std::min<int64_t>(room_ / heads_, p.max_query)),
        of_key_head_((p.group() + heads_ - 1) / heads_) {}

  bool right() const { return right_; }
  int64_t size() const { return (p_.tokens + tokens_ - 1) / tokens_ * p_.key_heads * of_key_head_; }
  // Multiplications of the largest share.
  int64_t work() const {
    int64_t longest = 1;
    for (int64_t i = 0; right_ && i < p_.batch; ++i)
      if (p_.fits(i)) longest = std::max<int64_t>(longest, p_.key_length[i]);
    return longest * tokens_ * heads_ * (p_.key.columns + p_.value.columns);
  }

  // Shares of neighbouring tokens follow one another, so that threads read the same keys.
  void run(int64_t share, AttendRows attend) const {
    const int64_t of_tokens = p_.key_heads * of_key_head_;
    const int64_t place = share % of_tokens, part = place % of_key_head_ * heads_;
    Rows rows{&p_,
              cache_,
              output_,
              -1,
              !right_,
              share / of_tokens * tokens_,
              place / of_key_head_ * p_.group() + part,
              0,
              0,
              room_};
    rows.heads = static_cast<int>(std::min(heads_, p_.group() - part));
    const int64_t end = std::min(rows.token + tokens_, p_.tokens);
    while (rows.token < end) {
      const int64_t next = std::min(right_ ? find_sequence(rows) : end, end);
      rows.count = static_cast<int>(next - rows.token) * rows.heads;
      attend(rows);
      rows.token = next;
    }
  }

 private:
  // The sequence of the first token, and the first token that is not of it.
  int64_t find_sequence(Rows& rows) const {
    const int64_t until = p_.starts_until(rows.token);
    rows.sequence = p_.sequence_of(rows.token);
    rows.lost = rows.sequence >= 0 && !p_.fits(rows.sequence);
    return until > p_.batch ? p_.tokens : p_.query_start[until];
  }

  const Layout& p_;
  const DType cache_, output_;
  const bool right_;
  const int room_;
  const int64_t heads_, tokens_, of_key_head_;
};

template <DType kInput, DType kCache>
Status compute(const Call& call, const Stream& stream) {
  const Layout p(call);
  const Shares shares(p, kCache, call.fields<Fields>().output_dtype);
  if (auto* const invalid = static_cast<int64_t*>(call.operands[kInvalid].data))
    *invalid = count_invalid(p, shares.right());
  const AttendRows attend = attend_rows<kInput>();
  host::parallel_for(stream.threads, shares.size(), std::max<int64_t>(kGrain / shares.work(), 1),
                     [&](int64_t first, int64_t last) {
                       for (int64_t i = first; i < last; ++i) shares.run(i, attend);
                     });
  return Status::success();
}

template <DType kInput, DType kCache>
constexpr Kernel make_kernel() {
  return {.op = "attention",
          .arithmetic = name_of(Accumulation::TensorSm90),
          .body = "rows",
          .dtypes = kDTypes<kInput, kCache>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee<kInput>,
          .rejects = rejects<kInput, kCache>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kInput, kCache>>};
}

template <DType kInput>
constexpr std::array kOfInput = {make_kernel<kInput, kInput>(), make_kernel<kInput, DType::Int8>(),
                                 make_kernel<kInput, DType::Float8E4M3FN>(),
                                 make_kernel<kInput, DType::Float8E5M2>()};

constexpr auto kKernels = joined(kOfInput<DType::Float16>, kOfInput<DType::BFloat16>);

}  // namespace
}  // namespace planq::attention

PLANQ_KERNELS(attention, host, kKernels);
