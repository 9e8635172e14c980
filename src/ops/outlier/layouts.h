// Where the elements of a matrix lie in each layout: as maps that both backends share, and as
// shapes of operands.
//
// A layout consists of lines of consecutive elements. Row has a line for each row, Col one for each
// column. The others consist of panels of 32 columns, one after another. A panel has a line of 32
// elements for each of its rows, padding included. In Col32, a line is a row of the panel. In
// ColAmpere it is too, but each 32 lines are permuted. In ColTuring, 8 lines hold 8 rows: the four
// even rows, then the four odd ones; in each half, four columns of the first row are followed by
// the same four columns of the other three rows.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/index_space.h"
#include "ops/outlier/vocabulary.h"

namespace planq::outlier {

inline constexpr int kPanel = 32;  // columns of a panel, and elements of its lines

// Row and Col have lines of any length.
PLANQ_HD constexpr bool has_panels(Layout layout) {
  return layout != Layout::Row && layout != Layout::Col;
}

// The number of rows of a layout's tile: panels have a multiple of it.
PLANQ_HD constexpr int tile_rows(Layout layout) {
  return layout == Layout::ColTuring ? 8 : layout == Layout::ColAmpere ? 32 : 1;
}

PLANQ_HD constexpr std::int64_t rounded_up(std::int64_t count, int unit) {
  return count / unit * unit + (count % unit != 0 ? unit : 0);
}

// A position in a panel, or in a piece of a panel that begins at a multiple of 32 rows: the line,
// and the element of the line.
struct PanelPlace {
  unsigned line, at;
};

PLANQ_HD constexpr PanelPlace panel_place(Layout layout, unsigned row, unsigned column) {
  if (layout == Layout::ColTuring) {
    const unsigned at = row % 2 * 128 + column / 4 * 16 + row % 8 / 2 * 4 + column % 4;
    return {row / 8 * 8 + at / kPanel, at % kPanel};
  }
  if (layout == Layout::ColAmpere) {
    const unsigned line = row % 8 / 2 * 8 + row % 32 / 8 * 2 + row % 2;
    return {row / 32 * 32 + line, column};
  }
  return {row, column};
}

// A row and a column of such a piece.
struct PanelElement {
  unsigned row, column;
};

// The inverse of panel_place(), from the offset of the element in the piece.
PLANQ_HD constexpr PanelElement panel_element(Layout layout, unsigned offset) {
  if (layout == Layout::ColTuring)
    return {offset / 256 * 8 + offset % 16 / 4 * 2 + offset % 256 / 128,
            offset % 128 / 16 * 4 + offset % 4};
  const unsigned line = offset / kPanel, column = offset % kPanel;
  if (layout == Layout::ColAmpere)
    return {line / 32 * 32 + line % 8 / 2 * 8 + line % 32 / 8 * 2 + line % 2, column};
  return {line, column};
}

// A matrix in memory.
struct MatrixLines {
  Layout layout = Layout::Row;
  std::int64_t rows = 0, columns = 0;
  std::int64_t panel_lines = 0;  // lines of a panel: the rows, rounded up to whole tiles
  IndexSpaceOf<1> lines;         // where each line begins

  // The rows and columns in memory, padding included.
  PLANQ_HD std::int64_t held_rows() const { return has_panels(layout) ? panel_lines : rows; }
  PLANQ_HD std::int64_t held_columns() const {
    return has_panels(layout) ? rounded_up(columns, kPanel) : columns;
  }
  PLANQ_HD std::int64_t line_at(std::int64_t line) const {
    return lines.rank == 0   ? 0
           : lines.rank == 1 ? line * lines.axes[0].stride[0]
                             : lines.offsets(line).at[0];
  }
  PLANQ_HD std::int64_t offset(std::int64_t row, std::int64_t column) const {
    if (layout == Layout::Row) return line_at(row) + column;
    if (layout == Layout::Col) return line_at(column) + row;
    const std::int64_t whole = row / 32 * 32;
    const PanelPlace place = panel_place(layout, static_cast<unsigned>(row - whole),
                                         static_cast<unsigned>(column % kPanel));
    return line_at(column / kPanel * panel_lines + whole + place.line) + place.at;
  }
};

// --- Descriptors ---------------------------------------------------------------------------------

// Rows are those of all axes but the last.
struct MatrixShape {
  std::int64_t rows, columns;

  explicit MatrixShape(const Shape& shape)
      : rows(shape.product(0, shape.rank - 1)), columns(shape.last()) {}
  MatrixShape(std::int64_t all_rows, std::int64_t all_columns)
      : rows(all_rows), columns(all_columns) {}
  MatrixShape transposed() const { return {columns, rows}; }
};

// The shape of the memory that holds a matrix in a layout other than Row.
inline Shape buffer_shape(Layout layout, const MatrixShape& matrix) {
  if (layout == Layout::Row) return {2, {matrix.rows, matrix.columns}};
  if (layout == Layout::Col) return {2, {matrix.columns, matrix.rows}};
  return {2, {rounded_up(matrix.rows, tile_rows(layout)), rounded_up(matrix.columns, kPanel)}};
}
// In Row, a tensor keeps its axes.
inline Shape buffer_shape(Layout layout, const Shape& shape) {
  return layout == Layout::Row ? shape : buffer_shape(layout, MatrixShape(shape));
}

// The same as rules for the operand table. If the field `transposed` is set, the buffer holds the
// transposed matrix.
constexpr Rule rounded_up(const Rule& extent, const Rule& unit) {
  return groups_of(extent, unit) * unit;
}
constexpr Rule buffer_shape(const char* layout, const Rule& tensor, const Rule& rows,
                            const Rule& columns) {
  const Rule unit = when(is(layout, Layout::ColTuring), tile_rows(Layout::ColTuring),
                         when(is(layout, Layout::ColAmpere), tile_rows(Layout::ColAmpere), 1));
  return when(is(layout, Layout::Row), tensor,
              when(is(layout, Layout::Col), axes(columns, rows),
                   axes(rounded_up(rows, unit), rounded_up(columns, kPanel))));
}
constexpr Rule buffer_shape(const char* layout, const char* tensor) {
  return buffer_shape(layout, tensor, elements_of(leading(tensor)), last_of(tensor));
}
constexpr Rule buffer_shape(const char* layout, const char* tensor, const char* transposed) {
  const Rule rows = elements_of(leading(tensor)), columns = last_of(tensor);
  return buffer_shape(layout, when(transposed, axes(columns, rows), tensor),
                      when(transposed, columns, rows), when(transposed, rows, columns));
}

// The lines of an operand of such a shape.
inline MatrixLines lines_of(Layout layout, const MatrixShape& matrix, const Shape& buffer,
                            const OperandView& view) {
  MatrixLines result;
  result.layout = layout;
  result.rows = matrix.rows;
  result.columns = matrix.columns;
  result.panel_lines = rounded_up(matrix.rows, tile_rows(layout));
  for (int i = 0; i + 1 < buffer.rank; ++i)
    result.lines.append({.extent = buffer[i], .stride = {view.strides[i]}});
  if (has_panels(layout))
    result.lines.append({.extent = buffer.last() / kPanel, .stride = {kPanel}});
  result.lines.merge();
  return result;
}

}  // namespace planq::outlier
