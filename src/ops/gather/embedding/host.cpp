// embedding on the host: chunks of the rows of the output, in loops that are compiled for every
// instruction set.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "core/index_space.h"
#include "core/scalar.h"
#include "core/sku.h"
#include "host/bind.h"
#include "host/simd.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "math/nibbles.h"
#include "ops/affine/affine.h"
#include "ops/gather/embedding/desc.h"
#include "ops/gather/embedding/rows.h"

namespace planq::embedding {

using std::int64_t;

// Columns of a chunk; even, so that a chunk of nibbles begins with a byte.
constexpr int64_t kChunk = 512;

struct Loops {
  void (*widen)(const void* row, int64_t first, int64_t count, NibbleOrder order, float* to);
  void (*multiply)(float by, int64_t count, float* values);
  void (*narrow)(const float* from, int64_t count, void* to);
};

}  // namespace planq::embedding

#define PLANQ_LOOPS "ops/gather/embedding/loops.h"
#include "host/instruction_sets.h"

namespace planq::embedding {
namespace {

// The fewest chunks, and the fewest indices, that are worth waking a thread for.
constexpr int64_t kGrain = 16, kIndexGrain = 1 << 14;

template <DType kTableType, class U>
const Loops& row_loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kRowLoops<kTableType, U>;
  if (level == host::Level::Avx2) return host::avx2::kRowLoops<kTableType, U>;
#endif
  return host::baseline::kRowLoops<kTableType, U>;
}

// Some columns of a row of the table as float32, with its scales.
void read_columns(const Call& call, const Loops& loops, int64_t row, int64_t first, int64_t count,
                  float* values) {
  const Fields& f = call.fields<Fields>();
  const OperandView &table = call.operands[kTable], &scale = call.operands[kScale];
  const auto* const from = static_cast<const std::byte*>(table.data) +
                           row * table.strides[0] * storage_bytes(f.table_dtype);
  loops.widen(from, first, count, f.nibble_order, values);
  if (!has_codes(f.table_dtype)) return;
  const int64_t group = f.group() > 0 ? f.group() : f.width();
  const int64_t scales = f.group() > 0 ? row * scale.strides[0] : row;
  for (int64_t done = 0; done < count;) {
    const int64_t column = first + done;
    const int64_t own = std::min(group - column % group, count - done);
    const float by = math::load_scale<float>(scale.data, scales + column / group, f.scale_dtype);
    loops.multiply(by, own, values + done);
    done += own;
  }
}

template <DType kTableType, DType kOutputType>
Status compute(const Call& call, const Stream& stream) {
  using U = math::Stored<kOutputType>;
  const Fields& f = call.fields<Fields>();
  const Rows rows(call);
  const Loops& loops = row_loops<kTableType, U>();
  // A product with 1 changes no bit, so it may be left out.
  const float factor = float_of(call.operands[kFactor], 1).get();
  auto* const output = static_cast<U*>(call.operands[kOutput].data);
  const int64_t chunks = (f.width() + kChunk - 1) / kChunk;
  host::parallel_for(stream.threads, rows.size() * chunks, kGrain, [&](int64_t from, int64_t to) {
    float values[kChunk];
    for (int64_t i = from; i < to; ++i) {
      const auto at = rows.space.offsets(i / chunks);
      const int64_t row = rows.index(at.at[0]), first = i % chunks * kChunk;
      const int64_t count = std::min(kChunk, f.width() - first);
      if (rows.has(row)) {
        read_columns(call, loops, row, first, count, values);
        if (factor != 1) loops.multiply(factor, count, values);
      } else {
        std::fill_n(values, count, 0.0f);
      }
      loops.narrow(values, count, output + at.at[1] + first);
    }
  });
  auto& invalid = *static_cast<int64_t*>(call.operands[kInvalid].data);
  invalid = 0;
  host::parallel_for(stream.threads, rows.size(), kIndexGrain, [&](int64_t from, int64_t to) {
    int64_t own = 0;
    for (int64_t i = from; i < to; ++i)
      own += rows.has(rows.index(rows.space.offsets(i).at[0])) ? 0 : 1;
    std::atomic_ref(invalid).fetch_add(own, std::memory_order_relaxed);
  });
  return Status::success();
}

template <DType kTableType, DType kOutputType>
constexpr Kernel make_kernel() {
  return {.op = "embedding",
          .body = "rows",
          .dtypes = kDTypes<kTableType, kOutputType>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kTableType, kOutputType>,
          .workspace = no_workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kTableType, kOutputType>>};
}

template <DType kTableType>
constexpr std::array kOfTable = {make_kernel<kTableType, DType::Float16>(),
                                 make_kernel<kTableType, DType::BFloat16>(),
                                 make_kernel<kTableType, DType::Float32>()};

constexpr auto kKernels =
    joined(kOfTable<DType::Float16>, kOfTable<DType::BFloat16>, kOfTable<DType::Float32>,
           kOfTable<DType::Int8>, kOfTable<DType::Int4>);

}  // namespace
}  // namespace planq::embedding

PLANQ_KERNELS(embedding, host, kKernels);
