// dequantize on the host.
#include <array>
#include <cstdint>

#include "core/rejects.h"
#include "core/sku.h"
#include "host/bind.h"
#include "math/formats.h"
#include "ops/affine/dequantize/desc.h"
#include "ops/affine/elementwise/host.h"

namespace planq::dequantize {
namespace {

using math::Compute;
using math::Stored;

// The integers behind a chunk of codes; of floating ones in 4 bits, the codes.
void take_codes(const void* input, std::int64_t offset, std::int64_t count, DType dtype,
                NibbleOrder order, std::int32_t* codes) {
  switch (dtype) {
    case DType::Int8:
      std::copy_n(static_cast<const std::int8_t*>(input) + offset, count, codes);
      return;
    case DType::UInt8:
      std::copy_n(static_cast<const std::uint8_t*>(input) + offset, count, codes);
      return;
    case DType::Int32:
      std::copy_n(static_cast<const std::int32_t*>(input) + offset, count, codes);
      return;
    case DType::Float4E2M1FN:
      return take_codes(input, offset, count, DType::UInt4, order, codes);
    default:
      for (std::int64_t i = 0; i < count; ++i)
        codes[i] = math::load_integer(input, offset + i, dtype, order);
  }
}

// The values of all codes of a floating type.
template <class C>
std::array<C, 256> float_table(DType dtype) {
  std::array<C, 256> table{};
  if (dtype == DType::Float4E2M1FN)
    for (std::uint32_t code = 0; code < 16; ++code)
      table[code] = static_cast<C>(math::e2m1_value(code));
  if (!is_fp8(dtype)) return table;
  for (int code = 0; code < 256; ++code)
    table[code] = math::float8_value<C>(static_cast<std::uint8_t>(code), dtype);
  return table;
}

// A scale and a bias for each column, as they are stored.
struct Columns {
  const void* scale = nullptr;
  const void* bias = nullptr;
  DType scale_dtype = DType::Float32, bias_dtype = DType::Float32;
};

template <class C>
void apply_columns(host::Chunk<C>& s, std::int64_t column, std::int64_t count,
                   const Columns& columns) {
  if (columns.scale)
    for (std::int64_t i = 0; i < count; ++i)
      s.value[i] *= math::load_scale<C>(columns.scale, column + i, columns.scale_dtype);
  if (columns.bias)
    for (std::int64_t i = 0; i < count; ++i)
      s.value[i] += math::load_scale<C>(columns.bias, column + i, columns.bias_dtype);
}

template <class T>
Status compute(const Call& call, const Stream& stream) {
  using C = Compute<T>;
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const auto& loops = host::affine_loops<T>();
  const void* input = operands[kInput].data;
  T* output = static_cast<T*>(operands[kOutput].data);
  const bool asymmetric = f.mode == Mode::Asymmetric, fp8 = is_fp8(f.input_dtype);
  const bool fp4 = f.input_dtype == DType::Float4E2M1FN;
  const auto table = float_table<C>(f.input_dtype);
  const Columns columns = {f.scope.kind == ScopeKind::Pair ? operands[kColumnScale].data : nullptr,
                           f.bias_dtype != DType::Unset ? operands[kBias].data : nullptr,
                           f.scale_dtype, f.bias_dtype};
  host::GivenOperands given = {operands[kScale].data,
                               asymmetric ? operands[kZeroPoint].data : nullptr, f.scale_dtype,
                               f.zero_point_dtype, f.nibble_order};
  if (f.convention == Convention::Nvfp4)
    given.tensor_scale = *static_cast<const float*>(operands[kTensorScale].data);
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kInput], is_four_bit(f.input_dtype)},
      {&operands[kOutput]},
      {},
      {&operands[kScale]},
      {asymmetric ? &operands[kZeroPoint] : nullptr, is_four_bit(f.zero_point_dtype)}};
  host::for_each_chunk<C>(
      stream.threads, f.shape, f.scope, layout, given, math::AffineSpec<C>{},
      [&](host::Chunk<C>& s, const host::ChunkPlace& place, std::int64_t count) {
        if (fp8) {
          const auto* codes = static_cast<const std::uint8_t*>(input) + place.at.at[0];
          for (std::int64_t i = 0; i < count; ++i) s.value[i] = s.scale[i] * table[codes[i]];
        } else if (fp4) {
          take_codes(input, place.at.at[0], count, f.input_dtype, f.nibble_order, s.code);
          for (std::int64_t i = 0; i < count; ++i) s.value[i] = s.scale[i] * table[s.code[i]];
        } else {
          take_codes(input, place.at.at[0], count, f.input_dtype, f.nibble_order, s.code);
          loops.dequantize(s, count);
          apply_columns(s, place.column, count, columns);
        }
        loops.narrow(s.value, count, output + place.at.at[1]);
      },
      columns.scale || columns.bias);
  return Status::success();
}

template <class T>
Status compute_by_convention(const Call& call, const Stream& stream) {
  using C = Compute<T>;
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const auto& loops = host::affine_loops<T>();
  const bool accumulator = f.input_dtype == DType::Int32, bias = f.bias_dtype != DType::Unset;
  T* output = static_cast<T*>(operands[kOutput].data);
  const host::GivenOperands given = {operands[kScale].data, nullptr, f.scale_dtype};
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kInput]}, {&operands[kOutput]}, {}, {&operands[kScale]}, {}};
  host::for_each_chunk<C>(
      stream.threads, f.shape, f.scope, layout, given, math::AffineSpec<C>{},
      [&](host::Chunk<C>& s, const host::ChunkPlace& place, std::int64_t count) {
        take_codes(operands[kInput].data, place.at.at[0], count, f.input_dtype, f.nibble_order,
                   s.code);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t column = place.column + i;
          const C column_scale =
              accumulator ? math::load_scale<C>(operands[kColumnScale].data, column, f.scale_dtype)
                          : C{1};
          const C added =
              bias ? math::load_scale<C>(operands[kBias].data, column, f.bias_dtype) : C{0};
          s.value[i] = value_by(f.convention, accumulator, static_cast<C>(s.code[i]), s.scale[i],
                                column_scale, added, bias);
        }
        loops.narrow(s.value, count, output + place.at.at[1]);
      },
      accumulator);
  return Status::success();
}

template <DType kIn, DType kOut, Reason (*kExpectConvention)(const Fields&)>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (reason.accepted()) reason = expect(ReasonKind::DType, "output_dtype", kOut, f.output_dtype);
  return reason.accepted() ? kExpectConvention(f) : reason;
}

template <DType kIn, DType kOut>
constexpr Kernel make_kernel() {
  constexpr bool kWide = kOut == DType::Float64;
  return {
      .op = "dequantize",
      .body = "elements",
      .dtypes = kDTypes<kIn, kOut>,
      .revision = kIn == DType::Int32 ? 1 : 2,
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
                    .basis = std::string_view("element by element; exact integer difference; one "
                                              "rounding for each product and sum")},
      .rejects = rejects<kIn, kOut, expect_own_convention>,
      .workspace = no_workspace,
      .prepare = nothing_to_prepare,
      .bind = host::bind<compute<Stored<kOut>>>,
  };
}

template <DType kIn, DType kOut>
constexpr Kernel make_convention_kernel() {
  Kernel kernel = make_kernel<kIn, kOut>();
  kernel.arithmetic = "convention";
  kernel.revision = 1;
  kernel.guarantee.basis = kConventionBasis;
  kernel.rejects = rejects<kIn, kOut, expect_other_convention>;
  kernel.bind = host::bind<compute_by_convention<Stored<kOut>>>;
  return kernel;
}

// Formats of groups: the same loops with scales of 8 bits.
template <DType kIn, DType kOut, bool kMx = true>
constexpr Kernel make_group_kernel() {
  Kernel kernel = make_kernel<kIn, kOut>();
  kernel.arithmetic = kMx ? "mx" : "nvfp4";
  kernel.revision = 1;
  kernel.guarantee.basis = kGroupBasis;
  kernel.rejects = rejects < kIn, kOut, kMx ? expect_mx : expect_nvfp4 > ;
  return kernel;
}

template <DType kOut>
constexpr std::array<Kernel, 4> group_kernels_of() {
  return {make_group_kernel<DType::Float4E2M1FN, kOut>(),
          make_group_kernel<DType::Float8E4M3FN, kOut>(),
          make_group_kernel<DType::Float8E5M2, kOut>(),
          make_group_kernel<DType::Float4E2M1FN, kOut, false>()};
}

template <DType kOut>
constexpr std::array<Kernel, 9> kernels_of() {
  return {make_kernel<DType::Int8, kOut>(),
          make_kernel<DType::UInt8, kOut>(),
          make_kernel<DType::Int4, kOut>(),
          make_kernel<DType::UInt4, kOut>(),
          make_kernel<DType::Int32, kOut>(),
          make_kernel<DType::Float8E4M3FN, kOut>(),
          make_kernel<DType::Float8E5M2, kOut>(),
          make_convention_kernel<DType::Int8, kOut>(),
          make_convention_kernel<DType::Int32, kOut>()};
}

constexpr auto kKernels = joined(
    kernels_of<DType::Float16>(), kernels_of<DType::BFloat16>(), kernels_of<DType::Float32>(),
    kernels_of<DType::Float64>(), group_kernels_of<DType::Float16>(),
    group_kernels_of<DType::BFloat16>(), group_kernels_of<DType::Float32>());

}  // namespace

}  // namespace planq::dequantize

PLANQ_KERNELS(dequantize, host, kKernels);
