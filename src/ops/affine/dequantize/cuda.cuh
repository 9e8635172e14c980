// dequantize on CUDA.
#pragma once

#include <array>
#include <cstdint>

#include "core/rejects.h"
#include "core/sku.h"
#include "cuda/element.cuh"
#include "ops/affine/affine.cuh"
#include "ops/affine/dequantize/desc.h"
#include "ops/affine/elementwise/group_scales.cuh"

namespace planq::dequantize {
namespace {

using cuda::ElementPlace;
using Out = cuda::Element;
using Value = math::Compute<Out>;

// How codes lie in memory, and what they are.
enum class Form { Byte, Nibble, Float8, Float4, Int32 };

constexpr Form form_of(DType dtype) {
  return dtype == DType::Int32           ? Form::Int32
         : is_fp8(dtype)                 ? Form::Float8
         : !is_four_bit(dtype)           ? Form::Byte
         : format_of(dtype).is_integer() ? Form::Nibble
                                         : Form::Float4;
}
constexpr bool has_two_a_byte(Form form) { return form == Form::Nibble || form == Form::Float4; }

// A scale and a zero point as the loops over codes want them.
struct Numbers {
  Value scale;
  Value offset;  // what an unsigned code is more than its difference to the zero point; if
                 // `fast_is_exact`
  std::int32_t zero_point;
  bool fast_is_exact;  // no product can be NaN, and the difference is exact in C
};

struct DequantizeArgs {
  const void* input;
  Out* output;
  DType dtype;
  NibbleOrder order;
  // int32: a scale and a bias for each column.
  const void *column_scale, *bias;
  DType column_scale_dtype, bias_dtype;
};

// No operand has more than 16 bytes in a vector.
template <Form kForm>
inline constexpr int kPerWidest =
    16 / static_cast<int>(kForm == Form::Int32 ? std::max(sizeof(Out), sizeof(std::int32_t))
                                               : sizeof(Out));

template <Form kForm, class GivenBy = cuda::GivenParameters>
struct Dequantize {
  using C = Value;
  using Given = GivenBy;
  using Args = DequantizeArgs;
  // Half a vector of nibbles would be two bytes.
  static constexpr int kVector = kPerWidest<kForm>;
  static constexpr bool kHasRule = false;
  static constexpr int kUnit = 1;
  static constexpr int kCodeBytes = kForm == Form::Int32    ? 4 * kVector
                                    : has_two_a_byte(kForm) ? kVector / 2
                                                            : kVector;
  static constexpr std::array<int, 3> kVectorBytes = {kCodeBytes,
                                                      kVector * static_cast<int>(sizeof(Out)), 1};
  // Nibbles make their thread prepare for few bytes.
  static constexpr cuda::TileShape kTile =
      has_two_a_byte(kForm) && sizeof(Out) == 2 ? cuda::kReadingTile : cuda::kWritingTile;
  static constexpr cuda::TileShape kGroupTile = kTile;
  static constexpr cuda::ColumnShape kColumnShape{8, false, 4};
  // Accumulators come with what belongs to their columns.
  static constexpr bool kHasColumns = kForm == Form::Int32;
  static constexpr int kColumns = kHasColumns ? kVector : 1;
  struct Columns {
    C scales[kColumns], biases[kColumns];
  };
  struct Vector {
    std::uint32_t words[(kCodeBytes + 3) / 4];
    Columns columns;
  };
  using Result = cuda::VectorOf<Out, kVector>;
  using Parameters = Numbers;

  __device__ __forceinline__ static Vector load(const Args& args, const ElementPlace& place) {
    Vector vector = load_codes(args, place);
    if constexpr (kHasColumns) vector.columns = load_columns(args, place.column);
    return vector;
  }
  __device__ __forceinline__ static Vector load_codes(const Args& args, const ElementPlace& place) {
    const std::int64_t at = place.at.at[0];
    const char* from = static_cast<const char*>(args.input) + (kForm == Form::Int32    ? 4 * at
                                                               : has_two_a_byte(kForm) ? at >> 1
                                                                                       : at);
    Vector vector{};
    const auto codes = cuda::load_vector<cuda::VectorOf<std::uint8_t, kCodeBytes>>(from);
    memcpy(vector.words, &codes, sizeof codes);
    return vector;
  }
  __device__ __forceinline__ static Columns load_columns(const Args& args, std::int64_t column) {
    Columns columns{};
    if (args.column_scale)
      read_columns(args.column_scale, column, args.column_scale_dtype, columns.scales);
    if (args.bias) read_columns(args.bias, column, args.bias_dtype, columns.biases);
    return columns;
  }

  template <bool>
  __device__ __forceinline__ static Parameters parameters(const Args& args, const Given&,
                                                          const cuda::StoredParameters<C>& stored) {
    const C scale = stored.scale;
    const std::int32_t zero_point = stored.zero_point;
    const bool exact = zero_point <= cuda::kLargeZeroPoint && zero_point >= -cuda::kLargeZeroPoint;
    const std::int32_t lowest = args.dtype == DType::Int8 ? 128 : args.dtype == DType::Int4 ? 8 : 0;
    // Codes come as the low bits of a float whose other bits are those of 2^23.
    const C base = sizeof(C) == 4 && kForm != Form::Int32 ? C(8388608.0) : C{0};
    return {scale, base + static_cast<C>(lowest + zero_point), zero_point,
            exact && math::is_finite(scale)};
  }

  // Code j of a vector as an unsigned one, in the low bits of 2^23 where C is float.
  __device__ __forceinline__ static C unsigned_code(const Vector& v, int j) {
    std::uint32_t code;
    if constexpr (kForm == Form::Nibble) {
      code = (v.words[j / 8] >> (4 * (j % 8))) & 0xFu;
      if constexpr (sizeof(C) == 4) return __uint_as_float(code | 0x4B000000u);
    } else {
      if constexpr (sizeof(C) == 4)
        return __uint_as_float(__byte_perm(v.words[j / 4], 0x4B000000u, 0x7650 | j % 4));
      code = (v.words[j / 4] >> (8 * (j % 4))) & 0xFFu;
    }
    return static_cast<C>(code);
  }
  // Codes with the first nibble lowest and the lowest code 0.
  __device__ __forceinline__ static Vector unsigned_codes(const Args& args, Vector v) {
#pragma unroll
    for (std::uint32_t& word : v.words) {
      if (args.dtype == DType::Int8) word ^= 0x80808080u;
      if (args.dtype == DType::Int4) word ^= 0x88888888u;
      if (kForm == Form::Nibble && args.order == NibbleOrder::HighFirst)
        word = (word & 0x0F0F0F0Fu) << 4 | (word >> 4 & 0x0F0F0F0Fu);
    }
    return v;
  }

  // The values of codes in 4 bits, the first one in the lowest.
  __device__ __forceinline__ static void float4_values(const Args& args, const Vector& v,
                                                       float (&values)[kVector]) {
    std::uint32_t word = v.words[0];
    if (args.order == NibbleOrder::HighFirst)
      word = (word & 0x0F0F0F0Fu) << 4 | (word >> 4 & 0x0F0F0F0Fu);
#pragma unroll
    for (int j = 0; j < kVector; ++j) values[j] = math::e2m1_value(word >> (4 * j));
  }

  // fp8 codes that are finite. Without the instruction: the fields of a code as those of a float,
  // times the difference of the exponents' biases.
  __device__ __forceinline__ static void finite_float8(const Vector& v, bool e4m3,
                                                       float (&values)[kVector]) {
#pragma unroll
    for (int j = 0; j < kVector; j += 2) {
      const std::uint32_t pair = (v.words[j / 4] >> (8 * (j % 4))) & 0xFFFFu;
#if PLANQ_CONVERTS_FLOAT8
      std::uint32_t halves;
      if (e4m3)
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(pair)));
      else
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(pair)));
      const uint4 vector = make_uint4(halves, 0, 0, 0);
      values[j] = cuda::element_of<math::Half>(vector, 0);
      values[j + 1] = cuda::element_of<math::Half>(vector, 1);
#else
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const std::uint32_t code = pair >> (8 * k);
        const float magnitude = e4m3 ? __uint_as_float((code & 0x7Fu) << 20) * 0x1p120f
                                     : __uint_as_float((code & 0x7Fu) << 21) * 0x1p112f;
        values[j + k] = __uint_as_float(__float_as_uint(magnitude) | (code & 0x80u) << 24);
      }
#endif
    }
  }
  __device__ __forceinline__ static bool any_special(const Vector& v, bool e4m3) {
    std::uint32_t found = 0;
#pragma unroll
    for (const std::uint32_t word : v.words)
      found |= ((word & 0x7F7F7F7Fu) + (e4m3 ? 0x01010101u : 0x04040404u)) & 0x80808080u;
    return found != 0;
  }

  // What columns hold from `column` on: all loads under way together.
  template <int kCount>
  __device__ __forceinline__ static void read_columns(const void* values, std::int64_t column,
                                                      DType dtype, C (&to)[kCount]) {
    const auto read = [&](auto type) {
      using S = decltype(type);
      const S* from = static_cast<const S*>(values) + column;
      S stored[kCount];
      constexpr int kBytes = std::min<int>(sizeof stored, 16);
      if (sizeof stored == kBytes && cuda::misalignment<kBytes>(from) == 0) {
        const auto vector = cuda::load_vector<cuda::VectorOf<std::uint8_t, kBytes>>(from);
        memcpy(stored, &vector, kBytes);
      } else {
#pragma unroll
        for (int j = 0; j < kCount; ++j) stored[j] = cuda::load_single(from + j);
      }
#pragma unroll
      for (int j = 0; j < kCount; ++j) to[j] = static_cast<C>(math::widen(stored[j]));
    };
    if (dtype == DType::Float32)
      read(float{});
    else if (dtype == DType::Float64)
      read(double{});
    else if (dtype == DType::Float16)
      read(math::Half{});
    else
      read(math::Bfloat16{});
  }

  // Whether the values are exact.
  template <bool, class ParametersOf>
  __device__ __forceinline__ static bool run(const Args& args, const Vector& vector,
                                             const ElementPlace&, const ParametersOf& of,
                                             Result& result) {
    C values[kVector];
    bool fast_is_exact = true;
#pragma unroll
    for (int j = 0; j < kVector; ++j) fast_is_exact = fast_is_exact && of(j).fast_is_exact;
    if constexpr (kForm == Form::Int32) {
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        values[j] = of(j).scale * static_cast<C>(static_cast<std::int32_t>(vector.words[j]));
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        if (args.column_scale) values[j] = values[j] * vector.columns.scales[j];
        if (args.bias) values[j] = values[j] + vector.columns.biases[j];
      }
      fast_is_exact = !cuda::any_nan(values);
    } else if constexpr (kForm == Form::Float8) {
      const bool e4m3 = args.dtype == DType::Float8E4M3FN;
      fast_is_exact = fast_is_exact && !any_special(vector, e4m3);
      float codes[kVector];
      finite_float8(vector, e4m3, codes);
#pragma unroll
      for (int j = 0; j < kVector; ++j) values[j] = of(j).scale * static_cast<C>(codes[j]);
    } else if constexpr (kForm == Form::Float4) {
      float codes[kVector];
      float4_values(args, vector, codes);
#pragma unroll
      for (int j = 0; j < kVector; ++j) values[j] = of(j).scale * static_cast<C>(codes[j]);
    } else {
      const Vector codes = unsigned_codes(args, vector);
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        values[j] = of(j).scale * (unsigned_code(codes, j) - of(j).offset);
    }
    result = cuda::narrow_vector<Out>(values);
    return fast_is_exact;
  }
  __device__ __forceinline__ static void store(const Args& args, const ElementPlace& place,
                                               const Result& result) {
    cuda::store_elements(args.output + place.at.at[1], result);
  }

  template <class PlaceOf>
  __device__ __forceinline__ static void run_single(const Args& args, const Given& given,
                                                    const PlaceOf& place_of, int first, int) {
    const ElementPlace place = place_of(first);
    const auto stored = given.template read_one<C>(place.at);
    C value;
    if constexpr (kForm == Form::Float8) {
      const auto* codes = static_cast<const std::uint8_t*>(args.input);
      value = stored.scale *
              math::float8_value<C>(cuda::load_single(codes + place.at.at[0]), args.dtype);
    } else if constexpr (kForm == Form::Float4) {
      const std::int32_t code =
          math::load_integer(args.input, place.at.at[0], DType::UInt4, args.order);
      value = stored.scale * static_cast<C>(math::e2m1_value(static_cast<std::uint32_t>(code)));
    } else {
      value =
          math::dequantized(math::load_integer(args.input, place.at.at[0], args.dtype, args.order),
                            stored.scale, stored.zero_point);
    }
    if constexpr (kForm == Form::Int32) {
      C held[1];
      if (args.column_scale) {
        read_columns(args.column_scale, place.column, args.column_scale_dtype, held);
        value = value * held[0];
      }
      if (args.bias) {
        read_columns(args.bias, place.column, args.bias_dtype, held);
        value = value + held[0];
      }
    }
    cuda::store_single(args.output + place.at.at[1], math::narrow<Out>(value));
  }
};

template <Form kForm>
Status prepare(const Descriptor&, const Device&, State&) {
  return cuda::preload_elements<Dequantize<kForm>>();
}

template <Form kForm>
Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const bool asymmetric = f.mode == Mode::Asymmetric;
  const bool pair = f.scope.kind == ScopeKind::Pair, bias = f.bias_dtype != DType::Unset;
  const DequantizeArgs args = {operands[kInput].data,
                               static_cast<Out*>(operands[kOutput].data),
                               f.input_dtype,
                               f.nibble_order,
                               pair ? operands[kColumnScale].data : nullptr,
                               bias ? operands[kBias].data : nullptr,
                               f.scale_dtype,
                               f.bias_dtype};
  const cuda::GivenParameters given = {operands[kScale].data,
                                       asymmetric ? operands[kZeroPoint].data : nullptr,
                                       f.scale_dtype, f.zero_point_dtype, f.nibble_order};
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kInput], is_four_bit(f.input_dtype)},
      {&operands[kOutput]},
      {},
      {&operands[kScale]},
      {asymmetric ? &operands[kZeroPoint] : nullptr, is_four_bit(f.zero_point_dtype)}};
  return cuda::launch_elements<Dequantize<kForm>>(args, given, f.shape, f.scope, layout, bound,
                                                  pair || bias);
}

// Formats of groups: a row of codes under scales of 8 bits.
template <Form kForm>
using DequantizeGroups = Dequantize<kForm, cuda::GivenGroupScales>;

template <Form kForm>
Status prepare_groups(const Descriptor&, const Device&, State&) {
  return cuda::preload_elements<DequantizeGroups<kForm>>();
}

template <Form kForm>
Status bind_groups(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  DequantizeArgs args{};
  args.input = operands[kInput].data;
  args.output = static_cast<Out*>(operands[kOutput].data);
  args.dtype = f.input_dtype;
  args.order = f.nibble_order;
  const cuda::GivenGroupScales given = {static_cast<const std::uint8_t*>(operands[kScale].data),
                                        static_cast<const float*>(operands[kTensorScale].data)};
  const std::array<ElementOperand, 5> layout = {
      ElementOperand{&operands[kInput], is_four_bit(f.input_dtype)},
      {&operands[kOutput]},
      {},
      {&operands[kScale]},
      {}};
  return cuda::launch_elements<DequantizeGroups<kForm>>(args, given, f.shape, f.scope, layout,
                                                        bound);
}

// Another library's convention: each block takes pieces of rows, and each thread elements that lie
// a block apart.
inline constexpr int kConventionThreads = 256, kConventionBatch = 4;
inline constexpr std::int64_t kConventionPiece = kConventionThreads * kConventionBatch;
inline constexpr std::int64_t kConventionBlocks = std::int64_t{1} << 30;

struct ConventionArgs {
  const void* input;
  Out* output;
  const void *scale, *column_scale, *bias;
  DType scale_dtype, bias_dtype;
  Convention convention;
  IndexSpaceOf<kElementOperands> rows;
  std::int64_t length, pieces, count;
};

template <class Code>
__global__ void __launch_bounds__(kConventionThreads)
    dequantize_by_convention(const __grid_constant__ ConventionArgs args) {
  constexpr bool kAccumulator = sizeof(Code) == 4;
#pragma unroll 1
  for (std::int64_t index = blockIdx.x; index < args.count; index += gridDim.x) {
    const std::int64_t row = index / args.pieces;
    const std::int64_t first = (index - row * args.pieces) * kConventionPiece + threadIdx.x;
    const ElementOffsets at = args.rows.offsets(row);
    const Code* codes = static_cast<const Code*>(args.input) + at.at[0];
    Out* output = args.output + at.at[1];
    Code code[kConventionBatch];
#pragma unroll
    for (int i = 0; i < kConventionBatch; ++i) {
      const std::int64_t column = first + i * kConventionThreads;
      code[i] = column < args.length ? codes[column] : Code{0};
    }
    const Value scale = math::load_scale<Value>(args.scale, at.at[kElementScale], args.scale_dtype);
#pragma unroll
    for (int i = 0; i < kConventionBatch; ++i) {
      const std::int64_t column = first + i * kConventionThreads;
      if (column >= args.length) break;
      Value column_scale{1}, bias{0};
      if (kAccumulator)
        column_scale = math::load_scale<Value>(args.column_scale, column, args.scale_dtype);
      if (args.bias) bias = math::load_scale<Value>(args.bias, column, args.bias_dtype);
      const Value value = value_by(args.convention, kAccumulator, static_cast<Value>(code[i]),
                                   scale, column_scale, bias, args.bias != nullptr);
      cuda::store_single(output + column, math::narrow<Out>(value));
    }
  }
}

template <class Code>
Status prepare_by_convention(const Descriptor&, const Device&, State&) {
  return cuda::preload(dequantize_by_convention<Code>);
}

template <class Code>
Status bind_by_convention(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const Operands& operands = call.operands;
  const std::array<ElementOperand, 5> operands_of = {
      ElementOperand{&operands[kInput]}, {&operands[kOutput]}, {}, {&operands[kScale]}, {}};
  const ElementLayout layout = element_layout(f.shape, f.scope, operands_of, sizeof(Code) == 4);
  if (layout.elements() == 0) return Status::success();
  const std::int64_t pieces = cuda::ceil_div(layout.length, kConventionPiece);
  const ConventionArgs args = {operands[kInput].data,
                               static_cast<Out*>(operands[kOutput].data),
                               operands[kScale].data,
                               operands[kColumnScale].data,
                               f.bias_dtype == DType::Unset ? nullptr : operands[kBias].data,
                               f.scale_dtype,
                               f.bias_dtype,
                               f.convention,
                               layout.rows,
                               layout.length,
                               pieces,
                               layout.rows.size() * pieces};
  return cuda::launch(dequantize_by_convention<Code>,
                      {std::min(args.count, kConventionBlocks), dim3(kConventionThreads)}, args,
                      bound);
}

template <DType kIn, Reason (*kExpectConvention)(const Fields&)>
Reason rejects(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  Reason reason = expect(ReasonKind::DType, "input_dtype", kIn, f.input_dtype);
  if (reason.accepted())
    reason = expect(ReasonKind::DType, "output_dtype", cuda::kElement, f.output_dtype);
  return reason.accepted() ? kExpectConvention(f) : reason;
}

template <DType kIn>
constexpr Kernel make_kernel() {
  constexpr bool kWide = std::is_same_v<Value, double>;
  return {
      .op = "dequantize",
      .body = "elements",
      .dtypes = kDTypes<kIn, cuda::kElement>,
      .revision = 1,
      .backend = Backend::Cuda,
      .arch = {80},
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
      .rejects = rejects<kIn, expect_own_convention>,
      .workspace = no_workspace,
      .prepare = prepare<form_of(kIn)>,
      .bind = bind<form_of(kIn)>,
  };
}

template <DType kIn>
constexpr Kernel make_convention_kernel() {
  using Code = std::conditional_t<kIn == DType::Int32, std::int32_t, std::int8_t>;
  Kernel kernel = make_kernel<kIn>();
  kernel.arithmetic = "convention";
  kernel.guarantee.basis = kConventionBasis;
  kernel.rejects = rejects<kIn, expect_other_convention>;
  kernel.prepare = prepare_by_convention<Code>;
  kernel.bind = bind_by_convention<Code>;
  return kernel;
}

template <DType kIn, bool kMx = true>
constexpr Kernel make_group_kernel() {
  Kernel kernel = make_kernel<kIn>();
  kernel.arithmetic = kMx ? "mx" : "nvfp4";
  kernel.guarantee.basis = kGroupBasis;
  kernel.rejects = rejects < kIn, kMx ? expect_mx : expect_nvfp4 > ;
  kernel.prepare = prepare_groups<form_of(kIn)>;
  kernel.bind = bind_groups<form_of(kIn)>;
  return kernel;
}

constexpr std::array<Kernel, 9> affine_kernels() {
  return {make_kernel<DType::Int8>(),
          make_kernel<DType::UInt8>(),
          make_kernel<DType::Int4>(),
          make_kernel<DType::UInt4>(),
          make_kernel<DType::Int32>(),
          make_kernel<DType::Float8E4M3FN>(),
          make_kernel<DType::Float8E5M2>(),
          make_convention_kernel<DType::Int8>(),
          make_convention_kernel<DType::Int32>()};
}

constexpr auto all_kernels() {
  // Formats of groups have no results in float64.
  if constexpr (std::is_same_v<Value, double>)
    return affine_kernels();
  else
    return joined(affine_kernels(),
                  std::array<Kernel, 4>{make_group_kernel<DType::Float4E2M1FN>(),
                                        make_group_kernel<DType::Float8E4M3FN>(),
                                        make_group_kernel<DType::Float8E5M2>(),
                                        make_group_kernel<DType::Float4E2M1FN, false>()});
}

constexpr auto kKernels = all_kernels();

}  // namespace

}  // namespace planq::dequantize
