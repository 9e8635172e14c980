// coo_to_csc on the host: a counting sort that uses the pointers as its counters.

#include <algorithm>
#include <cstdint>

#include "host/bind.h"
#include "ops/outlier/coo_to_csc/desc.h"

namespace planq::coo_to_csc {
namespace {

using std::int32_t;
using std::int64_t;

// Value is an integer of the size of the values, which are only moved.
template <class Value>
void sort(const Fields& f, const Operands& operands) {
  const auto input = [&]<class E>(int operand, E) {
    return static_cast<const E*>(operands[static_cast<std::size_t>(operand)].data);
  };
  const auto* const rows = input(kRowIndex, int32_t{});
  const auto* const columns = input(kColumnIndex, int32_t{});
  const auto* const values = input(kValue, Value{});
  auto* const pointer = static_cast<int32_t*>(operands[kPointer].data);
  auto* const output_rows = static_cast<int32_t*>(operands[kOutputRowIndex].data);
  auto* const output_values = static_cast<Value*>(operands[kOutputValue].data);
  const int64_t entries = outlier::kept_entries(*input(kCount, int64_t{}), f.capacity);
  const int64_t count = f.shape.last();
  const std::uint32_t none = last_key(f);

  std::fill_n(pointer, count + 1, 0);
  for (int64_t i = 0; i < entries; ++i)
    if (const std::uint32_t key = key_of(columns[i], none); key != none) ++pointer[key];
  int32_t before = 0;
  for (int64_t column = 0; column <= count; ++column) {
    const int32_t own = pointer[column];
    pointer[column] = before;
    before += own;
  }
  std::fill_n(output_rows + before, f.capacity - before, outlier::kNoIndex);
  std::fill_n(output_values + before, f.capacity - before, Value{0});
  for (int64_t i = 0; i < entries; ++i) {
    const std::uint32_t key = key_of(columns[i], none);
    if (key == none) continue;
    const int32_t place = pointer[key]++;
    output_rows[place] = rows[i];
    output_values[place] = values[i];
  }
  // Placing the entries has advanced each pointer to the next one's value.
  std::copy_backward(pointer, pointer + count, pointer + count + 1);
  pointer[0] = 0;
}

Status compute(const Call& call, const Stream&) {
  const Fields& f = call.fields<Fields>();
  if (storage_bytes(f.value_dtype) == 2)
    sort<std::uint16_t>(f, call.operands);
  else
    sort<std::uint32_t>(f, call.operands);
  return Status::success();
}

constexpr Kernel kKernels[] = {{.op = "coo_to_csc",
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

}  // namespace planq::coo_to_csc

PLANQ_KERNELS(coo_to_csc, host, kKernels);
