// transform_layout: converts a matrix of integers from one layout to another, transposed or not.
// The layouts are in outlier/layouts.h. Frame is how both backends see input and output, the two
// sides.
#pragma once

#include <type_traits>
#include <utility>

#include "core/operands.h"
#include "core/registry.h"
#include "core/rejects.h"
#include "ops/outlier/layouts.h"
#include "ops/outlier/vocabulary.h"

namespace planq::transform_layout {

using outlier::MatrixLines;
using outlier::MatrixShape;

struct Fields {
  Shape shape;  // of the matrix that comes in
  DType dtype = DType::Int8;
  Layout from_layout = Layout::Row;
  Layout to_layout = Layout::Row;
  bool transpose = false;
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, shape).required(), PLANQ_FIELD(Fields, dtype).from("input.dtype"),
    PLANQ_FIELD(Fields, from_layout),      PLANQ_FIELD(Fields, to_layout).required(),
    PLANQ_FIELD(Fields, transpose),
};

// Positions in Operands.
enum Operand : int { kInput, kOutput };
inline constexpr auto kOperands = operands(
    kFields,
    {{"input", Role::Input, "dtype", outlier::buffer_shape("from_layout", "shape")},
     {"output", Role::Output, "dtype", outlier::buffer_shape("to_layout", "shape", "transpose")}});

inline constexpr DType kIntegers[] = {DType::Int8, DType::Int32};

// The shapes of the operands.
inline Shape input_shape(const Fields& f) { return outlier::buffer_shape(f.from_layout, f.shape); }
inline Shape output_shape(const Fields& f) {
  if (f.transpose) return outlier::buffer_shape(f.to_layout, MatrixShape(f.shape).transposed());
  return outlier::buffer_shape(f.to_layout, f.shape);
}

// Both sides as Row or panels: Col is replaced by Row with rows and columns exchanged. The frame is
// the matrix as the output then has it. `turned` says that the input has its transpose.
struct Frame {
  MatrixLines input, output;
  bool turned;

  Frame(const Fields& f, const Operands& operands) : turned(f.transpose) {
    const MatrixShape matrix(f.shape);
    input = outlier::lines_of(f.from_layout, matrix, input_shape(f), operands[kInput]);
    output = outlier::lines_of(f.to_layout, f.transpose ? matrix.transposed() : matrix,
                               output_shape(f), operands[kOutput]);
    straighten(input);
    straighten(output);
  }

 private:
  void straighten(MatrixLines& side) {
    if (side.layout != Layout::Col) return;
    side.layout = Layout::Row;
    std::swap(side.rows, side.columns);
    side.panel_lines = side.rows;
    turned = !turned;
  }
};

// Calls use() with the layout as a constant. Sides of a Frame never have Col.
template <class Use>
PLANQ_HD void by_layout(Layout layout, const Use& use) {
  if (layout == Layout::Row)
    use(std::integral_constant<Layout, Layout::Row>{});
  else if (layout == Layout::Col32)
    use(std::integral_constant<Layout, Layout::Col32>{});
  else if (layout == Layout::ColTuring)
    use(std::integral_constant<Layout, Layout::ColTuring>{});
  else
    use(std::integral_constant<Layout, Layout::ColAmpere>{});
}

// Both backends promise the same: nothing is computed.
inline constexpr Guarantee kGuarantee = {.determinism = Determinism::BitExact,
                                         .math = MathPrecision::None,
                                         .accumulator = DType::Int32,
                                         .rounding = Rounding::None,
                                         .max_ulp = 0,
                                         .error_bound = kNoErrorBound,
                                         .batch_invariant = true,
                                         .basis = "moves elements; no arithmetic"};

template <DType kDType>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "dtype", kDType, descriptor.as<Fields>().dtype);
}

}  // namespace planq::transform_layout
