// A call of attention for both backends: where everything lies, and which keys a token sees.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/scalar.h"
#include "ops/attention/attention/desc.h"
#include "ops/attention/states.h"

namespace planq::attention {

// Keys, or values. Strides are in elements.
struct Side {
  const std::uint8_t* data = nullptr;
  std::int64_t page = 0, place = 0, head = 0;
  std::int64_t columns = 0;
  const float* scale = nullptr;  // null: there are none
  std::int64_t scale_page = 0, scale_place = 0, scale_head = 0;
};

// Keys of a sequence by their positions, from `first` to `end`.
struct Keys {
  std::int64_t first = 0, end = 0;

  PLANQ_HD bool any() const { return first < end; }
};

// Where a key lies; a page below 0 is none of the cache's.
struct Place {
  std::int64_t page, place;
};

struct Layout {
  const void* query;
  void* output;
  float* lse;         // null: it is not wanted
  const float* sink;  // null: there is none
  Side key, value;
  const std::int32_t *query_start, *key_length;
  const std::int32_t* table;  // null: each sequence has a page of its own
  std::int64_t table_row, pages, page_size;
  std::int64_t tokens, heads, key_heads, batch, max_query, max_key, window;
  std::int64_t query_token, query_head, output_token, output_head, lse_token;
  FloatScalar scale;
  float cap, inverse_cap;  // 0: scores have none
  bool causal;
  bool measured;       // each key has a scale of its own
  bool scales_scores;  // each score has its key's scale; else the factor of all has it

  explicit Layout(const Call& call)
      : key(side(call, kKeyCache, kKeyScale)), value(side(call, kValueCache, kValueScale)) {
    const Fields& f = call.fields<Fields>();
    const Operands& own = call.operands;
    query = own[kQuery].data;
    output = own[kOutput].data;
    lse = f.with_lse ? static_cast<float*>(own[kLse].data) : nullptr;
    sink = f.with_sink ? static_cast<const float*>(own[kSink].data) : nullptr;
    query_start = static_cast<const std::int32_t*>(own[kQueryStart].data);
    key_length = static_cast<const std::int32_t*>(own[kKeyLength].data);
    const bool paged = f.page_size > 0;
    table = paged ? static_cast<const std::int32_t*>(own[kBlockTable].data) : nullptr;
    table_row = paged ? own[kBlockTable].strides[0] : 0;
    pages = paged ? f.pages : f.batch;
    page_size = paged ? f.page_size : f.max_key;
    tokens = f.query_shape[0];
    heads = f.query_shape[1];
    key_heads = f.key_heads;
    batch = f.batch;
    max_query = f.max_query;
    max_key = f.max_key;
    window = f.window;
    query_token = own[kQuery].strides[0];
    query_head = own[kQuery].strides[1];
    output_token = own[kOutput].strides[0];
    output_head = own[kOutput].strides[1];
    lse_token = f.with_lse ? own[kLse].strides[0] : 0;
    scale = float_of(own[kScale]);
    cap = std::isnan(f.soft_cap) ? 0 : static_cast<float>(f.soft_cap);
    inverse_cap = cap > 0 ? 1 / cap : 0;
    causal = f.causal;
    measured = f.scale_scope == CacheScale::Token;
    scales_scores = key.scale && (cap > 0 || measured);
  }

  PLANQ_HD std::int64_t group() const { return heads / key_heads; }

  // Whether sequences follow one another and are inside of the tokens.
  PLANQ_HD bool starts_are_right() const {
    std::int32_t before = 0;
    for (std::int64_t i = 0; i <= batch; ++i) {
      if (query_start[i] < before || query_start[i] > tokens) return false;
      before = query_start[i];
    }
    return true;
  }
  // How many starts are not behind a token, the end of the last sequence among them.
  PLANQ_HD std::int64_t starts_until(std::int64_t token) const {
    std::int64_t low = 0, high = batch + 1;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (query_start[middle] <= token)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
  // The sequence of a token where starts are right; -1 where it is of none.
  PLANQ_HD std::int64_t sequence_of(std::int64_t token) const {
    const std::int64_t until = starts_until(token);
    return until > batch ? -1 : until - 1;
  }
  // Whether a sequence has no more queries and keys than the descriptor says.
  PLANQ_HD bool fits(std::int64_t sequence) const {
    return query_start[sequence + 1] - query_start[sequence] <= max_query &&
           key_length[sequence] >= 0 && key_length[sequence] <= max_key;
  }
  PLANQ_HD Keys seen(std::int64_t sequence, std::int64_t token) const {
    const std::int64_t length = key_length[sequence];
    const std::int64_t position = length - (query_start[sequence + 1] - token);
    Keys keys{0, causal && position + 1 < length ? position + 1 : length};
    if (window > 0 && position - window + 1 > 0) keys.first = position - window + 1;
    return keys;
  }
  PLANQ_HD Place place_of(std::int64_t sequence, std::int64_t key_position) const {
    if (!table) return {sequence, key_position};
    const std::int64_t page = table[sequence * table_row + key_position / page_size];
    return {page < pages ? page : -1, key_position % page_size};
  }
  // Whether the cache has all pages of these keys.
  PLANQ_HD bool has(std::int64_t sequence, Keys keys) const {
    if (!table || !keys.any()) return true;
    const std::int32_t* const own = table + sequence * table_row;
    for (std::int64_t i = keys.first / page_size; i <= (keys.end - 1) / page_size; ++i)
      if (own[i] < 0 || own[i] >= pages) return false;
    return true;
  }

  // The scale of a head, and of one key of it where they are measured. 1 where there are none.
  PLANQ_HD float head_scale(const Side& side, std::int64_t head) const {
    return side.scale && !measured ? side.scale[head * side.scale_head] : 1.0f;
  }
  PLANQ_HD float scale_of(const Side& side, Place at, std::int64_t head) const {
    if (!measured) return head_scale(side, head);
    return side
        .scale[at.page * side.scale_page + at.place * side.scale_place + head * side.scale_head];
  }
  // What scores are multiplied by before powers of 2 are taken. 0 where it is none that there may
  // be.
  PLANQ_HD float factor(std::int64_t key_head) const {
    const float all = math::score_of(scale.get());
    const float own = key.scale && !scales_scores ? all * head_scale(key, key_head) : all;
    return own > 0 && !math::is_lost(own) ? own : 0;
  }
  // What a head's outputs are multiplied by.
  PLANQ_HD bool scales_outputs() const { return value.scale && !measured; }

 private:
  static Side side(const Call& call, Operand cache, Operand scales) {
    const Fields& f = call.fields<Fields>();
    const OperandView &own = call.operands[cache], &scale = call.operands[scales];
    const bool by_place = f.layout == CacheLayout::Nhd;
    Side side;
    side.data = static_cast<const std::uint8_t*>(own.data);
    side.page = own.strides[0];
    side.place = own.strides[by_place ? 1 : 2];
    side.head = own.strides[by_place ? 2 : 1];
    side.columns = cache == kKeyCache ? f.query_shape.last() : f.value_dim;
    if (!is_code(f.cache_dtype)) return side;
    side.scale = static_cast<const float*>(scale.data);
    if (f.scale_scope == CacheScale::Head) side.scale_head = 1;
    if (f.scale_scope != CacheScale::Token) return side;
    side.scale_page = scale.strides[0];
    side.scale_place = scale.strides[by_place ? 1 : 2];
    side.scale_head = scale.strides[by_place ? 2 : 1];
    return side;
  }
};

}  // namespace planq::attention
