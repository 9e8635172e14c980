#include "ops/linear/product_host.h"

#include "host/thread_pool.h"

namespace planq::host {
namespace {

using linear::Product;

std::int32_t sum_of(const Product& p, std::int64_t row, std::int64_t column) {
  std::uint32_t sum = 0;
  for (std::int64_t term = 0; term < p.k; ++term)
    sum += static_cast<std::uint32_t>(p.input.code(row, term) * p.weight.code(column, term));
  return static_cast<std::int32_t>(sum);
}

template <class T>
void finish_row(const Product& p, std::int64_t row) {
  using C = math::Compute<T>;
  const linear::Epilogue& e = p.epilogue;
  T* const to = reinterpret_cast<T*>(p.output) + row * p.output_row;
  const auto terms = linear::row_term<C>(e, row);
  for (std::int64_t column = 0; column < p.n; ++column)
    to[column] = math::narrow<T>(linear::finish<C>(sum_of(p, row, column), terms,
                                                   linear::column_term<C>(e, column), e,
                                                   linear::residual_at<C>(e, row, column)));
}

template <class T>
void integer_row(const Product& p, std::int64_t row) {
  T* const to = reinterpret_cast<T*>(p.output) + row * p.output_row;
  for (std::int64_t column = 0; column < p.n; ++column)
    to[column] = linear::integer_output<T>(sum_of(p, row, column));
}

void compute_row(const Product& p, std::int64_t row) {
  switch (p.output_dtype) {
    case DType::Int32:
      return integer_row<std::int32_t>(p, row);
    case DType::Int8:
      return integer_row<std::int8_t>(p, row);
    case DType::Float16:
      return finish_row<math::Half>(p, row);
    case DType::BFloat16:
      return finish_row<math::Bfloat16>(p, row);
    case DType::Float32:
      return finish_row<float>(p, row);
    default:
      return finish_row<double>(p, row);
  }
}

}  // namespace

void multiply(const Product& product, int threads) {
  if (product.empty()) return;
  const std::int64_t rows = product.m;
  parallel_for(threads, rows * product.batch.size(), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) compute_row(product.at(i / rows), i % rows);
  });
}

}  // namespace planq::host
