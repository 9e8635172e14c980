// quantize on the host.
#include <array>
#include <cstdint>

#include "core/rejects.h"
#include "core/sku.h"
#include "host/bind.h"
#include "math/formats.h"
#include "ops/affine/elementwise/host.h"
#include "ops/affine/quantize/desc.h"

namespace planq::quantize {
namespace {

using math::Compute;
using math::Stored;

// Codes of a chunk, each in a byte, as they lie in memory.
void put_codes(const std::uint8_t* codes, std::int64_t count, std::uint8_t* output,
               std::int64_t offset, bool four_bit, NibbleOrder order) {
  if (!four_bit) {
    std::copy_n(codes, count, output + offset);
    return;
  }
  for (std::int64_t i = 0; i < count; i += 2)
    output[(offset + i) / 2] =
        math::pack_nibbles(codes[i], i + 1 < count ? codes[i + 1] : std::uint8_t{0}, order);
}

template <class T>
Status compute(const Call& call, const Stream& stream) {
  using C = Compute<T>;
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const auto spec = spec_of<C>(f);
  const auto& loops = host::affine_loops<T>();
  const bool four_bit = is_four_bit(f.output_dtype);
  const T* input = static_cast<const T*>(operands[kInput].data);
  auto* output = static_cast<std::uint8_t*>(operands[kOutput].data);
  const bool asymmetric = f.mode == Mode::Asymmetric;
  const host::GivenOperands given = {operands[kScale].data,
                                     asymmetric ? operands[kZeroPoint].data : nullptr,
                                     f.scale_dtype, f.zero_point_dtype, f.nibble_order};
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kInput]},
      {&operands[kOutput], four_bit},
      {},
      {&operands[kScale]},
      {asymmetric ? &operands[kZeroPoint] : nullptr, is_four_bit(f.zero_point_dtype)}};
  host::for_each_chunk<C>(
      stream.threads, f.shape, f.scope, layout, given, spec,
      [&](host::Chunk<C>& s, const host::ChunkPlace& place, std::int64_t count) {
        loops.widen(input + place.at.at[0], count, s.value);
        loops.quantize(s, count, spec);
        put_codes(s.byte, count, output, place.at.at[1], four_bit, f.nibble_order);
      });
  return Status::success();
}

template <DType kIn, DType kOut>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  return reason.accepted() ? expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype)
                           : reason;
}

template <DType kIn, DType kOut>
constexpr Kernel make_kernel() {
  constexpr bool kWide = kIn == DType::Float64;
  return {
      .op = "quantize",
      .body = "elements",
      .dtypes = kDTypes<kIn, kOut>,
      .revision = is_fp8(kOut) ? 1 : 2,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = {.determinism = Determinism::BitExact,
                    .math = kWide ? MathPrecision::F64 : MathPrecision::F32,
                    .accumulator = kWide ? DType::Float64 : DType::Float32,
                    .rounding = Rounding::NearestEven,
                    .max_ulp = 0,
                    .error_bound = kNoErrorBound,
                    .batch_invariant = true,
                    .basis = std::string_view("element by element; IEEE division; round to nearest "
                                              "even; exact integer sums")},
      .rejects = rejects<kIn, kOut>,
      .workspace = no_workspace,
      .prepare = nothing_to_prepare,
      .bind = host::bind<compute<Stored<kIn>>>,
  };
}

template <DType kIn>
constexpr std::array<Kernel, 6> kernels_of() {
  return {make_kernel<kIn, DType::Int8>(),         make_kernel<kIn, DType::UInt8>(),
          make_kernel<kIn, DType::Int4>(),         make_kernel<kIn, DType::UInt4>(),
          make_kernel<kIn, DType::Float8E4M3FN>(), make_kernel<kIn, DType::Float8E5M2>()};
}

constexpr auto kKernels = joined(kernels_of<DType::Float16>(), kernels_of<DType::BFloat16>(),
                                 kernels_of<DType::Float32>(), kernels_of<DType::Float64>());

}  // namespace

}  // namespace planq::quantize

PLANQ_KERNELS(quantize, host, kKernels);
