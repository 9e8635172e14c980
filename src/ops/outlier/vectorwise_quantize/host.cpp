// vectorwise_quantize on the host: ranges, statistics of them, then codes.

#include <array>
#include <cstdint>

#include "core/scratch.h"
#include "core/sku.h"
#include "host/bind.h"
#include "host/thread_pool.h"
#include "math/formats.h"
#include "ops/affine/ranges/host.h"
#include "ops/outlier/vectorwise_host.h"
#include "ops/outlier/vectorwise_quantize/desc.h"

namespace planq::vectorwise_quantize {
namespace {

using math::Compute;
using math::Stored;

// The fewest segments that are worth waking a thread for.
constexpr std::int64_t kGrain = 1 << 12;

template <class C>
C* book(const Fields& f, Scratch& scratch) {
  if (!outlier::has_zero_point(f.form)) return nullptr;
  const Shape parameters = parameter_shape(f.shape, scope_of(f));
  return scratch.take<C>(static_cast<std::size_t>(parameters.elements()));
}

template <class C>
std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch scratch;
  book<C>(descriptor.as<Fields>(), scratch);
  return scratch.bytes();
}

template <class C>
void settle(const Statistics<C>& statistics, const Stream& stream) {
  host::parallel_for(stream.threads, statistics.segments.count, kGrain,
                     [&](std::int64_t first, std::int64_t last) {
                       for (std::int64_t i = first; i < last; ++i) statistics.settle(i);
                     });
}

template <class T>
void quantize(const Fields& f, const Operands& operands, const Stream& stream) {
  using C = Compute<T>;
  const T* input = static_cast<const T*>(operands[kInput].data);
  auto* output = static_cast<std::uint8_t*>(operands[kOutput].data);
  const auto& affine = host::affine_loops<T>();
  const auto& loops = host::vectorwise_loops<C>();
  const host::VectorwiseOperands<C> given = {
      &operands[kInput], &operands[kOutput], &operands[kScale],
      outlier::has_zero_point(f.form) ? &operands[kZeroPoint] : nullptr};
  host::for_each_vectorwise_chunk<C>(
      stream.threads, f.shape, scope_of(f), given,
      [&](host::VectorwiseChunk<C>& s, const std::array<std::int64_t, 2>& at, std::int64_t count) {
        affine.widen(input + at[0], count, s.value);
        loops.quantize(f.form, s, count);
        std::copy_n(s.byte, count, output + at[1]);
      });
}

template <class T>
Status compute(const Call& call, const Stream& stream) {
  using C = Compute<T>;
  const Fields& f = call.fields<Fields>();
  Scratch scratch(call.workspace);
  C* const low = book<C>(f, scratch);
  host::measure_ranges(problem_of(f), ranges_of(f, call.operands, low), stream);
  settle(Statistics<C>(f, call.operands, low), stream);
  quantize<T>(f, call.operands, stream);
  return Status::success();
}

template <DType kIn, DType kOut>
constexpr Kernel make_kernel() {
  using C = Compute<Stored<kIn>>;
  return {.op = "vectorwise_quantize",
          .body = "elements",
          .dtypes = kDTypes<kIn, kOut>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = guarantee<C>(),
          .rejects = rejects<kIn, kOut>,
          .workspace = workspace<C>,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<Stored<kIn>>>};
}

template <DType kIn>
constexpr std::array<Kernel, 2> kernels_of() {
  return {make_kernel<kIn, DType::Int8>(), make_kernel<kIn, DType::UInt8>()};
}

constexpr auto kKernels = joined(kernels_of<DType::Float16>(), kernels_of<DType::BFloat16>(),
                                 kernels_of<DType::Float32>(), kernels_of<DType::Float64>());

}  // namespace

}  // namespace planq::vectorwise_quantize

PLANQ_KERNELS(vectorwise_quantize, host, kKernels);
