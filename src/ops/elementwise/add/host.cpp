// add on the host: chunks are widened, added and narrowed.

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/sku.h"
#include "host/bind.h"
#include "host/element_chunks.h"
#include "host/simd.h"
#include "math/formats.h"
#include "ops/elementwise/add/desc.h"

namespace planq::add {

struct Conversions {
  void (*widen)(const void* from, std::int64_t count, float* to);
  void (*narrow)(const float* from, std::int64_t count, void* to);
};
struct Loops {
  Conversions conversions[3];  // in the order of elementwise::kTypes
  void (*add)(float* values, const float* others, float alpha, std::int64_t count);

  const Conversions& of(DType type) const {
    int place = 0;
    while (elementwise::kTypes[place] != type) ++place;
    return conversions[place];
  }
};

}  // namespace planq::add

#define PLANQ_LOOPS "ops/elementwise/add/loops.h"
#include "host/instruction_sets.h"

namespace planq::add {
namespace {

const Loops& add_loops() {
#if PLANQ_SIMD_X86
  static const host::Level level = host::detect_level();
  if (level == host::Level::Avx512) return host::avx512::kAddLoops;
  if (level == host::Level::Avx2) return host::avx2::kAddLoops;
#endif
  return host::baseline::kAddLoops;
}

// An operand's memory at an element.
std::byte* place_of(const OperandView& view, std::int64_t element) {
  return static_cast<std::byte*>(view.data) + element * (bits_of(view.dtype) / 8);
}

Status compute(const Call& call, const Stream& stream) {
  const Fields& f = call.fields<Fields>();
  const Operands& given = call.operands;
  const Loops& loops = add_loops();
  const Conversions &input = loops.of(f.input_dtype), &other = loops.of(f.other_dtype),
                    &output = loops.of(f.output_dtype);
  const float alpha = Factor(given[kAlpha]).get();
  host::each_chunk(layout_of(call), stream.threads,
                   [&](const ElementOffsets& row, std::int64_t column, std::int64_t count) {
                     float values[host::kElementChunk], others[host::kElementChunk];
                     input.widen(place_of(given[kInput], row.at[kInput] + column), count, values);
                     other.widen(place_of(given[kOther], row.at[kOther] + column), count, others);
                     loops.add(values, others, alpha, count);
                     output.narrow(values, count,
                                   place_of(given[kOutput], row.at[kOutput] + column));
                   });
  return Status::success();
}

template <DType kInputType, DType kOutputType>
constexpr Kernel kAdd =
    kernel<kInputType, kOutputType, Backend::Host>(nothing_to_prepare, host::bind<compute>);

template <DType kInputType>
constexpr std::array kAddOfInput = {kAdd<kInputType, DType::Float16>,
                                    kAdd<kInputType, DType::BFloat16>,
                                    kAdd<kInputType, DType::Float32>};

constexpr auto kKernels =
    joined(kAddOfInput<DType::Float16>, kAddOfInput<DType::BFloat16>, kAddOfInput<DType::Float32>);

}  // namespace
}  // namespace planq::add

PLANQ_KERNELS(add, host, kKernels);
