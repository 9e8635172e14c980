// linear_llm_int8: a linear layer of codes, with floating values, the outliers, in listed columns
// of its input. The arithmetic is that of ops/linear/epilogue.h.
#pragma once

#include <string_view>

#include "core/rejects.h"
#include "core/scratch.h"
#include "ops/linear/int8_layer.h"
#include "ops/linear/operand_lines.h"
#include "ops/linear/vocabulary.h"

namespace planq::linear_llm_int8 {

using std::int64_t;

struct Fields {
  Shape input_shape;   // (..., m, k)
  Shape weight_shape;  // (n, k)
  DType input_dtype = DType::Int8;
  DType weight_dtype = DType::Int8;
  DType output_dtype = DType::Unset;
  Scope input_scope = {ScopeKind::Token};
  Scope weight_scope = {ScopeKind::Channel};
  Mode input_mode = Mode::Symmetric;
  Mode weight_mode = Mode::Symmetric;
  DType scale_dtype = DType::Unset;
  DType bias_dtype = DType::Unset;
  DType residual_dtype = DType::Unset;
  Convention convention = Convention::Planq;
  int64_t capacity = 0;
  DType outlier_dtype = DType::Unset;
  Accumulation accumulation = Accumulation::Sequential;

  linear::OperandField input() const { return {input_shape, input_dtype}; }
  linear::OperandField weight() const { return {weight_shape, weight_dtype}; }
  int64_t rows() const { return input_shape.product(0, input_shape.rank - 1); }
  int64_t columns() const { return weight_shape[0]; }
  DType compute() const { return compute_dtype(output_dtype); }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, weight_shape).required().from("weight.shape"),
    PLANQ_FIELD(Fields, input_dtype),
    PLANQ_FIELD(Fields, weight_dtype),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, input_scope),
    PLANQ_FIELD(Fields, weight_scope),
    PLANQ_FIELD(Fields, input_mode),
    PLANQ_FIELD(Fields, weight_mode),
    PLANQ_FIELD(Fields, scale_dtype).from("input_scale.dtype"),
    PLANQ_FIELD(Fields, bias_dtype).from("bias.dtype"),
    PLANQ_FIELD(Fields, residual_dtype).from("residual.dtype"),
    PLANQ_FIELD(Fields, convention),
    PLANQ_FIELD(Fields, capacity).required(),
    PLANQ_FIELD(Fields, outlier_dtype).required().from("outlier.dtype"),
    PLANQ_FIELD(Fields, accumulation),
};

// Positions in Operands, behind those of linear::LayerOperand.
enum Operand : int { kIndex = linear::kLayerOperands, kCount, kOutlier };
inline constexpr auto kOperands =
    operands(kFields, linear::layer_lines(),
             {{"index", Role::Input, DType::Int32, "capacity"},
              {"count", Role::Input, DType::Int64, 1},
              {"outlier", Role::Input, "outlier_dtype", axes(leading("input_shape"), "capacity")}});

// The numbers of a matrix: rows * columns, or the largest std::size_t where that overflows.
inline std::size_t held_in(int64_t rows, int64_t columns) {
  std::size_t numbers = 0;
  return __builtin_mul_overflow(rows, columns, &numbers) ? ~std::size_t{0} : numbers;
}

// The workspace, written before the gemm: the weight's codes at the listed columns, a row for each
// column, and the outliers in the compute type. Rows are padded to whole vectors.
struct Room {
  static constexpr int64_t kCodes = 16, kValues = 4;

  std::int8_t* codes;
  void* values;
  int64_t code_pitch, value_pitch;
  std::size_t bytes;

  Room(const Fields& f, Scratch& scratch)
      : code_pitch((f.columns() + kCodes - 1) / kCodes * kCodes),
        value_pitch((f.capacity + kValues - 1) / kValues * kValues) {
    codes = scratch.take<std::int8_t>(held_in(f.capacity, code_pitch));
    const std::size_t held = held_in(f.rows(), value_pitch);
    values = f.compute() == DType::Float64 ? static_cast<void*>(scratch.take<double>(held))
                                           : scratch.take<float>(held);
    bytes = scratch.bytes();
  }
};

// A contiguous tensor with `length` numbers for each row of the input.
inline OperandView rows_view(const Fields& f, void* data, DType dtype, int64_t length) {
  OperandView view;
  view.data = data;
  view.dtype = dtype;
  view.rank = f.input_shape.rank;
  std::copy_n(f.input_shape.dims.begin(), view.rank, view.extents.begin());
  view.extents[view.rank - 1] = length;
  int64_t stride = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    view.strides[axis] = stride;
    stride *= view.extents[axis];
  }
  return view;
}
// The outliers as the room holds them, in place of the operand.
inline OperandView values_view(const Fields& f, const Room& room) {
  return rows_view(f, room.values, f.compute(), room.value_pitch);
}

// What every kernel's bind begins with. `values`: the outliers, as the operand or the room has
// them.
inline linear::Gemm gemm_with(const Call& call, const OperandView& values) {
  const Fields& f = call.fields<Fields>();
  linear::Gemm gemm = linear::layer_gemm(f, call.operands, &values);
  linear::Outliers& outliers = gemm.epilogue.outliers;
  outliers.index = static_cast<const std::int32_t*>(call.operands[kIndex].data);
  outliers.count = static_cast<const int64_t*>(call.operands[kCount].data);
  outliers.capacity = f.capacity;
  return gemm;
}
inline void set_codes(linear::Gemm& gemm, const Room& room) {
  gemm.epilogue.outliers.codes = room.codes;
  gemm.epilogue.outliers.pitch = room.code_pitch;
}
// For kernels that read the room.
inline linear::Gemm gemm_of(const Call& call, const Room& room) {
  linear::Gemm gemm = gemm_with(call, values_view(call.fields<Fields>(), room));
  set_codes(gemm, room);
  return gemm;
}

// The rows of the outliers: their offsets in the operand (kGiven) and in the room (kHeld).
enum RowOperand : int { kGiven, kHeld };
inline IndexSpace value_rows(const Fields& f, const Operands& operands, const Room& room) {
  const OperandView held = values_view(f, room);
  IndexSpace rows;
  for (int i = 0; i < f.input_shape.rank - 1; ++i) {
    Axis axis;
    axis.extent = f.input_shape[i];
    axis.stride = {operands[kOutlier].strides[i], held.strides[i]};
    rows.append(axis);
  }
  rows.merge();
  return rows;
}

// The code of a weight at a place of the list; 0 where the list names no column.
PLANQ_HD std::int8_t listed_code(const linear::GemmOperand& weight, int64_t row,
                                 std::int32_t column, int64_t columns) {
  if (column < 0 || column >= columns) return 0;
  return static_cast<std::int8_t>(weight.code(row, column));
}

template <Accumulation kAccumulation>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::Feature, "accumulation", kAccumulation,
                descriptor.as<Fields>().accumulation);
}

// The guarantee of the kernels of both backends.
template <Accumulation kAccumulation>
inline constexpr Guarantee kGuarantee = {
    .determinism = Determinism::BitExact,
    .math = MathPrecision::Int32,
    .accumulator = DType::Int32,
    .rounding = Rounding::NearestEven,
    .max_ulp = 0,
    .error_bound = kNoErrorBound,
    .batch_invariant = true,
    .basis = std::string_view(
        kAccumulation == Accumulation::Sequential
            ? "exact integer sums; then one fma for each listed column, ascending; "
              "IEEE operations in a fixed order"
            : "exact integer sums; then tensor cores of sm_90 as measured, computed exactly, over "
              "listed columns, ascending; IEEE operations in a fixed order")};

}  // namespace planq::linear_llm_int8
