// double_quantize on the host: two passes over the tiles of absmax_host.h. In between, prefix sums
// of the counts of outliers say where each tile's part of a row begins in the list.

#include <algorithm>
#include <cstdint>

#include "core/scratch.h"
#include "host/bind.h"
#include "math/formats.h"
#include "ops/outlier/absmax_host.h"
#include "ops/outlier/coo.h"
#include "ops/outlier/double_quantize/desc.h"

namespace planq::double_quantize {
namespace {

using outlier::Tile;
using outlier::TiledMatrix;
using std::int64_t;

// Books the prefix sums: the number of entries before each tile's part of each row, and of all.
int64_t* book(Scratch& scratch, const Fields& f) {
  if (!finds_outliers(f)) return nullptr;
  const int64_t parts = outlier::rows_of(f.shape) * outlier::column_tiles(f.shape.last());
  return scratch.take<int64_t>(static_cast<std::size_t>(parts) + 1);
}

// Further operands with rows, after those that every measured matrix has.
enum : int { kCodesOfRow = outlier::kMatrixOther, kCodesOfColumn };

template <class T>
class Quantizing {
 public:
  Quantizing(const Fields& f, const Operands& operands, int64_t* before, int threads)
      : fields_(f),
        operands_(operands),
        matrix_{outlier::matrix_rows(f.shape, {&operands[kInput], &operands[kRowAbsmax],
                                               &operands[kRowCodes], &operands[kColumnCodes]}),
                outlier::rows_of(f.shape), f.shape.last()},
        rule_(outlier::outlier_rule<T>(f.threshold)),
        spec_(outlier::code_spec(f.quotient)),
        before_(before),
        threads_(threads) {}

  void run() const {
    measure();
    const int64_t count = before_ ? sum_counts() : 0;
    *static_cast<int64_t*>(operands_[kCount].data) = count;
    outlier::for_each_tile(threads_, matrix_, [&](const Tile& tile) { encode(tile); });
    const int64_t kept = outlier::kept_entries(count, fields_.capacity),
                  rest = fields_.capacity - kept;
    std::fill_n(data<std::int32_t>(kRowIndex) + kept, rest, outlier::kNoIndex);
    std::fill_n(data<std::int32_t>(kColumnIndex) + kept, rest, outlier::kNoIndex);
    std::fill_n(data<T>(kValue) + kept, rest, outlier::element_of<T>(0));
  }

 private:
  template <class E>
  E* data(int operand) const {
    return static_cast<E*>(operands_[static_cast<std::size_t>(operand)].data);
  }
  int64_t part(int64_t row, int64_t across) const { return row * matrix_.tiles_across() + across; }

  void measure() const {
    outlier::measure(threads_, matrix_, rule_, data<T>(kInput), data<float>(kRowAbsmax),
                     data<float>(kColumnAbsmax),
                     [&](int64_t row, const Offsets&, int64_t across, std::int32_t outliers) {
                       if (before_) before_[part(row, across)] = outliers;
                     });
  }

  int64_t sum_counts() const {
    const int64_t parts = matrix_.row_count * matrix_.tiles_across();
    int64_t count = 0;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t own = before_[i];
      before_[i] = count;
      count += own;
    }
    return before_[parts] = count;
  }

  void encode(const Tile& tile) const {
    const outlier::TileLoops<T>& loops = outlier::tile_loops<T>();
    const auto codes = fields_.quotient == Quotient::Divide ? loops.divide : loops.multiply;
    outlier::TileFactors columns;
    for (int64_t j = 0; j < tile.columns; ++j) {
      const float absmax = data<float>(kColumnAbsmax)[tile.first_column + j];
      const outlier::CodeFactor factor = outlier::code_factor(spec_, absmax);
      columns.scale[j] = factor.scale;
      columns.inverse[j] = factor.inverse;
    }
    for (int64_t row = tile.first_row; row < tile.last_row; ++row) {
      const Offsets at = matrix_.rows.offsets(row);
      const T* const x = data<T>(kInput) + at.at[outlier::kMatrixInput] + tile.first_column;
      const float absmax = data<float>(kRowAbsmax)[at.at[outlier::kMatrixAbsmax]];
      codes(x, tile.columns, rule_, outlier::code_factor(spec_, absmax), columns,
            data<std::int8_t>(kRowCodes) + at.at[kCodesOfRow] + tile.first_column,
            data<std::int8_t>(kColumnCodes) + at.at[kCodesOfColumn] + tile.first_column);
      if (before_) list(row, tile, x);
    }
  }

  // Lists the outliers of a tile's part of a row, up to the capacity.
  void list(int64_t row, const Tile& tile, const T* x) const {
    const int64_t* const place = before_ + part(row, tile.across);
    const int64_t end = std::min(place[1], fields_.capacity);
    for (int64_t at = place[0], j = 0; at < end; ++j) {
      if (!rule_.takes(outlier::magnitude_of(x[j]))) continue;
      data<std::int32_t>(kRowIndex)[at] = static_cast<std::int32_t>(row);
      data<std::int32_t>(kColumnIndex)[at] = static_cast<std::int32_t>(tile.first_column + j);
      data<T>(kValue)[at++] = x[j];
    }
  }

  const Fields& fields_;
  const Operands& operands_;
  const TiledMatrix matrix_;
  const outlier::OutlierRule<T> rule_;
  const math::AffineSpec<float> spec_;
  int64_t* const before_;
  const int threads_;
};

template <DType kElement>
Status compute(const Call& call, const Stream& stream) {
  const Fields& f = call.fields<Fields>();
  Scratch scratch(call.workspace);
  Quantizing<math::Stored<kElement>>(f, call.operands, book(scratch, f), stream.threads).run();
  return Status::success();
}

std::size_t workspace(const Descriptor& descriptor, const Device&) {
  Scratch scratch;
  book(scratch, descriptor.as<Fields>());
  return scratch.bytes();
}

template <DType kElement>
constexpr Kernel make_kernel() {
  return {.op = "double_quantize",
          .body = "tiles",
          .dtypes = kDTypes<kElement, DType::Int8>,
          .revision = 1,
          .backend = Backend::Host,
          .arch = {},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kElement>,
          .workspace = workspace,
          .prepare = nothing_to_prepare,
          .bind = host::bind<compute<kElement>>};
}

constexpr Kernel kKernels[] = {make_kernel<DType::Float16>(), make_kernel<DType::BFloat16>(),
                               make_kernel<DType::Float32>()};

}  // namespace

}  // namespace planq::double_quantize

PLANQ_KERNELS(double_quantize, host, kKernels);
