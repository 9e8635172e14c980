// The rows of a call, for both backends: those of the blocks in their order, or those that an index
// names.
#pragma once

#include <cstdint>

#include "ops/gguf/block_rows.h"
#include "ops/gguf/blocks.h"
#include "ops/gguf/gguf_dequantize/desc.h"

namespace planq::gguf_dequantize {

struct Rows {
  gguf::BlockRows rows;  // of the blocks and the output, or of the index and the output
  gguf::Bytes input;
  const void* indices = nullptr;  // null: there are none
  std::int64_t table_rows = 0, table_stride = 0;
  bool is_wide = false;  // indices of 64 bits

  explicit Rows(const Call& call) : Rows(call, call.fields<Fields>()) {}

  std::int64_t size() const { return rows.space.size(); }
  // Whether the index that a row has at an offset names a row of the blocks.
  PLANQ_HD bool has(std::int64_t offset) const {
    return static_cast<std::uint64_t>(index(offset)) < static_cast<std::uint64_t>(table_rows);
  }
  // The first byte of a row; null where its index names none.
  PLANQ_HD gguf::Bytes find(std::int64_t offset) const {
    if (indices == nullptr) return input + offset;
    return has(offset) ? input + index(offset) * table_stride : nullptr;
  }

 private:
  Rows(const Call& call, const Fields& f)
      : rows(f.shape, f.type, call.operands[f.has_index() ? kIndex : kInput],
             call.operands[kOutput], !f.has_index()),
        input(static_cast<gguf::Bytes>(call.operands[kInput].data)) {
    if (!f.has_index()) return;
    indices = call.operands[kIndex].data;
    table_rows = f.table_rows;
    table_stride = call.operands[kInput].strides[0];
    is_wide = f.index_dtype == DType::Int64;
  }
  PLANQ_HD std::int64_t index(std::int64_t offset) const {
    return is_wide ? static_cast<const std::int64_t*>(indices)[offset]
                   : static_cast<const std::int32_t*>(indices)[offset];
  }
};

}  // namespace planq::gguf_dequantize
