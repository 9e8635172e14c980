// Rows of attention for one instruction set: see host.cpp. No include guard: see
// host/instruction_sets.h.
//
// A row is a head of a token. Rows of one sequence whose heads share a key head are computed
// together, at most kMostRows. They go through their keys block by block. Products are those of
// ops/linear/host/float_tensor_core.h: first queries are its rows and keys its columns, then powers
// of scores are its rows and keys its terms.

#include "ops/linear/host/number_loops.h"
#include "ops/linear/host/weight_only_loops.h"
// This one uses both.
#include "ops/linear/host/float_widen.h"
// This one uses it.
#include "ops/linear/host/float_tensor_core.h"

namespace planq::host::PLANQ_LEVEL::floating {

static_assert(kPanelTerms == math::kBlockKeys && kMostRows % kWideRows == 0);
static_assert(kColumnRoom % kPanelColumns == 0);

using attention::Keys;
using attention::Layout;
using attention::Place;
using attention::Rows;
using attention::Side;

// Elements of a cache in float32, which holds them exactly, as it does both types of queries.
// Inlined, as are the parts of a block: the stack has no room for further frames.
template <class T>
[[gnu::always_inline]] inline void widen_cached(DType cache, const std::uint8_t* from,
                                                std::int64_t count, float* to) {
  switch (cache) {
    case DType::Float8E4M3FN:
      return widen_float8<true>(from, count, to);
    case DType::Float8E5M2:
      return widen_float8<false>(from, count, to);
    case DType::Int8:
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = static_cast<float>(static_cast<std::int8_t>(from[i]));
      return;
    default:
      return widen<T>(from, count, to);
  }
}

// What a row has of a span's keys so far, and of all spans before.
struct RowState {
  float most, sums[4];
  float merged_most = -math::detail::infinity(), merged_sum = 0;
  Keys keys;          // that it sees
  int first, end;     // those of them that are in the block
  bool lost;          // its outputs are NaN
  bool seen = false;  // whether it has seen a key of the span
};

template <class T, DType kInput>
class RowLoops {
 public:
  explicit RowLoops(const Rows& rows)
      : p_(*rows.layout),
        rows_(rows),
        code_bytes_(attention::is_code(rows.cache) ? 1 : 2),
        key_head_(rows.head / p_.group()),
        factor_(p_.factor(key_head_)) {
    for (int r = 0; r < count(); ++r) begin_row(r);
    clear_values(room_.merged);
  }

  void run() {
    std::int64_t at = all_.first / math::kSpanKeys * math::kSpanKeys;
    for (; at < all_.end; at += math::kSpanKeys) add_span(at);
    for (int r = 0; r < count(); ++r) write_row(r);
  }

 private:
  static constexpr int kSmallest = format_of(kInput).smallest_exponent();
  static constexpr ChainArgs kChains{kSmallest, kSmallest, true};
  static constexpr JoinSlices kGoOn{nullptr, true};

  // The arrays of all blocks. Elements of a row lie in pieces of kPanelColumns, beside the same
  // pieces of the other rows.
  struct alignas(64) Room {
    WidePanel panel;
    WideRows wide;
    float scores[kMostRows * kPanelTerms];
    float found[kHeldValues], merged[kHeldValues];
    float key_scales[kPanelTerms], value_scales[kPanelTerms];
    const std::uint8_t *keys[kPanelTerms], *values[kPanelTerms];  // null: the cache lacks it
  };

  int count() const { return rows_.count; }
  std::int64_t token_of(int r) const { return rows_.token + r / rows_.heads; }
  std::int64_t head_of(int r) const { return rows_.head + r % rows_.heads; }

  void begin_row(int r) {
    RowState& row = states_[r];
    row.lost = rows_.lost || !(factor_ > 0);
    if (row.lost || rows_.sequence < 0) return;
    row.keys = p_.seen(rows_.sequence, token_of(r));
    if (!row.keys.any()) return;
    all_.first = all_.any() ? std::min(all_.first, row.keys.first) : row.keys.first;
    all_.end = std::max(all_.end, row.keys.end);
  }

  float* piece(float* held, int r, std::int64_t column) const {
    return held + (column * rows_.room + std::int64_t{r} * kPanelColumns);
  }

  // Only what values have columns for: a short sequence takes less time than all of the room.
  void clear_values(float* held) const {
    const std::int64_t columns =
        (p_.value.columns + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
    std::memset(held, 0, sizeof(float) * static_cast<std::size_t>(columns * rows_.room));
  }

  void add_span(std::int64_t at) {
    for (int r = 0; r < count(); ++r) {
      RowState& row = states_[r];
      row.most = -math::detail::infinity();
      std::memset(row.sums, 0, sizeof row.sums);
      row.seen = false;
    }
    clear_values(room_.found);
    for (std::int64_t block = at; block < std::min(at + math::kSpanKeys, all_.end);
         block += kPanelTerms)
      if (find_keys(block)) add_block(block);
    for (int r = 0; r < count(); ++r)
      if (states_[r].seen) merge_row(r);
  }

  // Which keys of the block each row sees; whether any does.
  bool find_keys(std::int64_t block) {
    first_ = kPanelTerms;
    end_ = 0;
    differ_ = false;
    for (int r = 0; r < count(); ++r) {
      RowState& row = states_[r];
      const auto inside = [&](std::int64_t key) {
        return static_cast<int>(std::clamp<std::int64_t>(key - block, 0, kPanelTerms));
      };
      row.first = inside(row.keys.first);
      row.end = std::max(inside(row.keys.end), row.first);
      differ_ |= row.first != states_[0].first || row.end != states_[0].end;
      if (row.first == row.end) continue;
      row.seen = true;
      first_ = std::min(first_, row.first);
      end_ = std::max(end_, row.end);
    }
    used_ = (end_ + kUsed - 1) / kUsed * kUsed;
    return first_ < end_;
  }

  void add_block(std::int64_t block) {
    for (int j = first_; j < end_; ++j) find_place(j, block + j);
    score();
    for (int r = 0; r < count(); ++r) weigh(r);
    add_values();
  }

  void find_place(int j, std::int64_t key) {
    const Place at = p_.place_of(rows_.sequence, key);
    const auto find = [&](const Side& side) -> const std::uint8_t* {
      if (at.page < 0) return nullptr;
      return side.data +
             (at.page * side.page + at.place * side.place + key_head_ * side.head) * code_bytes_;
    };
    room_.keys[j] = find(p_.key);
    room_.values[j] = find(p_.value);
    const bool has = at.page >= 0;
    if (p_.scales_scores) room_.key_scales[j] = has ? p_.scale_of(p_.key, at, key_head_) : 1.0f;
    if (p_.measured) room_.value_scales[j] = has ? p_.scale_of(p_.value, at, key_head_) : 1.0f;
    if (has) return;
    for (int r = 0; r < count(); ++r)
      states_[r].lost |= states_[r].first <= j && j < states_[r].end;
  }

  // --- Scores ------------------------------------------------------------------------------------

  // Products of all rows with the block's keys.
  [[gnu::always_inline]] void score() {
    std::memset(
        room_.scores, 0,
        sizeof(float) * static_cast<std::size_t>(used_) * static_cast<std::size_t>(rows_.room));
    for (int j = first_ / kPanelColumns * kPanelColumns; j < end_; j += kPanelColumns)
      for (std::int64_t term = 0; term < p_.key.columns; term += kPanelTerms) {
        const int terms =
            static_cast<int>(std::min<std::int64_t>(kPanelTerms, p_.key.columns - term));
        widen_keys(j, term, terms);
        each_wide_rows([&](int r, int together) {
          widen_queries(r, together, term, terms);
          add_rows(r, together, 0, terms, room_.scores, j);
        });
      }
  }

  // Columns of a panel from keys of the block.
  void widen_keys(int j, std::int64_t term, int terms) {
    WidePanel& panel = room_.panel;
    for (int v = 0; v < kPanelVectors; ++v) {
      const int own = j + v * kFloatLanes;
      for (int i = own; i < own + kFloatLanes; ++i) {
        float* const line = panel.lines[i - own];
        if (first_ <= i && i < end_ && room_.keys[i])
          widen_cached<T>(rows_.cache, room_.keys[i] + term * code_bytes_, terms, line);
        else
          std::memset(line, 0, sizeof(float) * static_cast<std::size_t>(terms));
      }
      turn_lines(panel.lines, panel.values[0] + v * kFloatLanes, terms);
    }
    find_exponents(panel, 0, terms, kSmallest);
  }

  void widen_queries(int r, int together, std::int64_t term, int terms) {
    for (int i = 0; i < together; ++i) {
      const T* const from = static_cast<const T*>(p_.query) + token_of(r + i) * p_.query_token +
                            head_of(r + i) * p_.query_head + term;
      widen<T>(from, terms, room_.wide.values[i]);
    }
    find_exponents(room_.wide, together, kSmallest, terms);
  }

  // Calls use(first row, rows) for at most kWideRows rows at a time.
  template <class Use>
  void each_wide_rows(const Use& use) {
    for (int r = 0; r < count(); r += kWideRows) use(r, std::min(kWideRows, count() - r));
  }

  // Terms of the wide rows and of the panel, whose first column is `column`, are added to sums.
  void add_rows(int r, int together, int first, int end, float* held, std::int64_t column) {
    for (int i = 0; i < together; i += kTogether)
      add_chains<math::TensorCore16>(std::min(kTogether, together - i), kChains, room_.wide, i,
                                     room_.panel, first, end, kGoOn, piece(held, r + i, column));
  }

  // --- Powers of scores --------------------------------------------------------------------------

  [[gnu::always_inline]] void weigh(int r) {
    RowState& row = states_[r];
    alignas(64) float x[kPanelTerms];
    if (row.first == row.end) {
      std::memset(x, 0, sizeof x);
      return store_scores(r, x);
    }
    for (int j = 0; j < used_; j += kPanelColumns)
      std::memcpy(x + j, piece(room_.scores, r, j), sizeof(float) * kPanelColumns);
    if (p_.scales_scores)
      for (int j = row.first; j < row.end; ++j) x[j] = x[j] * room_.key_scales[j];
    if (p_.cap > 0)
      for (int j = row.first; j < row.end; ++j) {
        const float share = x[j] * p_.inverse_cap;
        x[j] = p_.cap * math::tanh(share);
      }
    fade(r, largest(row, x));
    take_powers(row, x);
    store_scores(r, x);
  }

  // The row's M with the block. A score that is NaN, or no number below infinity, loses the row.
  // Scores that the row does not see become -inf, so that whole vectors are looked at.
  float largest(RowState& row, float* x) const {
    const float none = -math::detail::infinity();
    for (int j = 0; j < row.first; ++j) x[j] = none;
    for (int j = row.end; j < used_; ++j) x[j] = none;
    alignas(64) float most[kPanelColumns];
    alignas(64) std::uint32_t lost[kPanelColumns] = {};
    for (float& own : most) own = none;
    const auto take = [&](int i, float score) {
      most[i] = math::detail::select(score > most[i], score, most[i]);
    };
    for (int j = 0; j < used_; j += kPanelColumns)
      for (int i = 0; i < kPanelColumns; ++i) {
        lost[i] |= math::is_lost(x[j + i]) ? 1u : 0u;
        take(i, x[j + i]);
      }
    for (int half = kPanelColumns / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) {
        lost[i] |= lost[i + half];
        take(i, most[i + half]);
      }
    const float own = most[0] * factor_;
    row.lost |= lost[0] != 0 || math::is_lost(own);
    return math::detail::select(own > row.most, own, row.most);
  }

  // Goes over to another M.
  void fade(int r, float next) {
    RowState& row = states_[r];
    const float by = math::fading(row.most, next);
    row.most = next;
    if (by == 1.0f) return;
    for (float& sum : row.sums) sum = sum * by;
    for (std::int64_t column = 0; column < p_.value.columns; column += kPanelColumns) {
      float* const found = piece(room_.found, r, column);
      for (int i = 0; i < kPanelColumns; ++i) found[i] = found[i] * by;
    }
  }

  // In the place of scores, what values are weighed by: powers in the queries' type. Those of keys
  // that the row does not see are 0.
  void take_powers(RowState& row, float* x) const {
    for (int j = 0; j < used_; ++j)
      x[j] = math::power_of_score(math::fused(x[j], factor_, -row.most));
    for (int j = 0; j < row.first; ++j) x[j] = 0;
    for (int j = row.end; j < used_; ++j) x[j] = 0;
    for (int j = 0; j < used_; j += 8)
      for (int i = 0; i < 2; ++i)
        for (int q = 0; q < 4; ++q) row.sums[q] = row.sums[q] + x[j + 2 * q + i];
    if (p_.measured)
      for (int j = row.first; j < row.end; ++j) x[j] = x[j] * room_.value_scales[j];
    round_numbers<T>(x + row.first, row.end - row.first);
  }

  void store_scores(int r, const float* x) {
    for (int j = 0; j < used_; j += kPanelColumns)
      std::memcpy(piece(room_.scores, r, j), x + j, sizeof(float) * kPanelColumns);
  }

  // --- Values ------------------------------------------------------------------------------------

  [[gnu::always_inline]] void add_values() {
    for (std::int64_t column = 0; column < p_.value.columns; column += kPanelColumns) {
      widen_cached_values(column, first_, end_);
      // A NaN or an infinity times 0 is a NaN. So a row must not meet those that it does not see.
      if (differ_ && has_odd_values()) {
        for (int r = 0; r < count(); ++r)
          if (states_[r].first < states_[r].end) {
            widen_cached_values(column, states_[r].first, states_[r].end);
            weigh_values(r, 1, column);
          }
        continue;
      }
      each_wide_rows([&](int r, int together) { weigh_values(r, together, column); });
    }
  }

  // Groups of a tensor core that have keys some row sees.
  int first_term() const { return first_ / kGroup * kGroup; }
  int end_term() const { return (end_ + kGroup - 1) / kGroup * kGroup; }

  // Terms of a panel from the values of keys from `first` to `end`; others are 0.
  void widen_cached_values(std::int64_t column, int first, int end) {
    WidePanel& panel = room_.panel;
    const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, p_.value.columns - column);
    for (int j = first_term(); j < end_term(); ++j) {
      const std::uint8_t* const from = first <= j && j < end ? room_.values[j] : nullptr;
      if (!from || columns < kPanelColumns) std::memset(panel.values[j], 0, sizeof panel.values[j]);
      if (from) widen_cached<T>(rows_.cache, from + column * code_bytes_, columns, panel.values[j]);
    }
    find_exponents(panel, first_term(), end_term(), kSmallest);
  }

  bool has_odd_values() const {
    Ints odd = {};
    for (int j = first_term(); j < end_term(); ++j)
      for (int v = 0; v < kPanelVectors; ++v) {
        const Floats values = load(room_.panel.values[j] + v * kFloatLanes);
        odd |= (reinterpret_cast<Ints>(values) & 0x7FFFFFFF) >= 0x7F800000;
      }
    return any(odd);
  }

  void weigh_values(int r, int together, std::int64_t column) {
    for (int i = 0; i < together; ++i)
      for (int j = 0; j < used_; j += kPanelColumns)
        std::memcpy(room_.wide.values[i] + j, piece(room_.scores, r + i, j),
                    sizeof(float) * kPanelColumns);
    find_exponents(room_.wide, together, kSmallest, used_);
    add_rows(r, together, first_term(), end_term(), room_.found, column);
  }

  // --- Spans, and the end ------------------------------------------------------------------------

  void merge_row(int r) {
    RowState& row = states_[r];
    const float low = row.sums[0] + row.sums[1], high = row.sums[2] + row.sums[3];
    const math::Merging merging(row.merged_most, row.most);
    row.merged_sum = merging.sum(row.merged_sum, low + high);
    row.merged_most = merging.most;
    for (std::int64_t column = 0; column < p_.value.columns; column += kPanelColumns) {
      float* const merged = piece(room_.merged, r, column);
      const float* const found = piece(room_.found, r, column);
      for (int i = 0; i < kPanelColumns; ++i) merged[i] = merging.sum(merged[i], found[i]);
    }
  }

  void write_row(int r) {
    const RowState& row = states_[r];
    const float* const sink = p_.sink ? p_.sink + head_of(r) : nullptr;
    const math::RowEnd end(row.merged_most, row.merged_sum, row.lost, sink);
    if (p_.lse) p_.lse[token_of(r) * p_.lse_token + head_of(r)] = math::narrow<float>(end.lse);
    for (std::int64_t column = 0; column < p_.value.columns; column += kPanelColumns)
      write_columns(r, end, column);
  }

  void write_columns(int r, const math::RowEnd& end, std::int64_t column) {
    float* const y = piece(room_.merged, r, column);
    const float scale = p_.head_scale(p_.value, key_head_);
    const bool scales = p_.scales_outputs();
    for (int i = 0; i < kPanelColumns; ++i) y[i] = end.output(y[i], scales ? &scale : nullptr);
    if (end.lost || !states_[r].keys.any())
      for (int i = 0; i < kPanelColumns; ++i) y[i] = end.lost ? math::canonical_nan<float>() : 0.0f;
    const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, p_.value.columns - column);
    const std::int64_t at = token_of(r) * p_.output_token + head_of(r) * p_.output_head + column;
    switch (rows_.output) {
      case DType::Float16:
        return narrow<math::Half>(y, columns, static_cast<math::Half*>(p_.output) + at);
      case DType::BFloat16:
        return narrow<math::Bfloat16>(y, columns, static_cast<math::Bfloat16*>(p_.output) + at);
      default:
        return narrow<float>(y, columns, static_cast<float*>(p_.output) + at);
    }
  }

  static constexpr int kGroup = math::TensorCore16::kGroup;
  // Scores are made a panel at a time, and weigh values a step at a time.
  static constexpr int kUsed = std::max(kPanelColumns, kGroup);
  static_assert(kUsed % kPanelColumns == 0 && kUsed % kGroup == 0 && kPanelTerms % kUsed == 0);

  const Layout& p_;
  const Rows& rows_;
  const int code_bytes_;  // of an element of the cache
  const std::int64_t key_head_;
  const float factor_;
  Keys all_;         // that some row sees
  int first_, end_;  // those of them in the block
  int used_;         // columns of scores up to the end, in whole panels and steps
  bool differ_;      // rows see different ones
  RowState states_[kMostRows];
  Room room_;
};

// Not inlined: its arrays are on the stack.
template <class T, DType kInput>
[[gnu::noinline]] void attend_rows(const Rows& rows) {
  RowLoops<T, kInput>(rows).run();
}

template <DType kInput>
inline constexpr attention::AttendRows kAttendRows = attend_rows<math::Stored<kInput>, kInput>;

}  // namespace planq::host::PLANQ_LEVEL::floating
