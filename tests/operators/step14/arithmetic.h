// What both backends compute.
#pragma once

#include <cmath>

#include "core/host_device.h"
#include "core/scalar.h"
#include "desc.h"

namespace planq::step14 {

// Rows of floats, or none.
struct Matrix {
  float* data;
  std::int64_t stride;

  PLANQ_HD float* at(std::int64_t row, std::int64_t column) const {
    return data + row * stride + column;
  }
};
inline Matrix matrix_of(const OperandView& view) {
  return {static_cast<float*>(view.data), view.strides[0]};
}

struct Arguments {
  std::int64_t rows, columns;
  Matrix parameter, gradient, average, square, largest, copy;
  RealScalar rate, beta1, beta2, epsilon, decay, gradient_scale;
  IntegerScalar skip;
  std::int64_t* step;

  PLANQ_HD bool skips() const { return skip.get() != 0; }
};

inline Arguments arguments_of(const Call& call) {
  const Operands& given = call.operands;
  const Shape& shape = call.fields<Fields>().shape;
  return {shape[0],
          shape[1],
          matrix_of(given[kParameter]),
          matrix_of(given[kGradient]),
          matrix_of(given[kAverage]),
          matrix_of(given[kSquare]),
          matrix_of(given[kLargest]),
          matrix_of(given[kCopy]),
          real_of(given[kRate]),
          real_of(given[kBeta1]),
          real_of(given[kBeta2]),
          real_of(given[kEpsilon]),
          real_of(given[kDecay]),
          real_of(given[kGradientScale], 1),
          integer_of(given[kSkip]),
          static_cast<std::int64_t*>(given[kStep].data)};
}

// After the step was counted.
PLANQ_HD void update(const Arguments& a, std::int64_t row, std::int64_t column) {
  float& parameter = *a.parameter.at(row, column);
  float& average = *a.average.at(row, column);
  float& square = *a.square.at(row, column);
  const double beta1 = a.beta1.get(), beta2 = a.beta2.get();
  const double g = *a.gradient.at(row, column) / a.gradient_scale.get();
  const double mean = beta1 * average + (1 - beta1) * g;
  double power = beta2 * square + (1 - beta2) * (g * g);
  average = static_cast<float>(mean);
  square = static_cast<float>(power);
  if (a.largest.data) {
    float& largest = *a.largest.at(row, column);
    if (power < largest) power = largest;
    largest = static_cast<float>(power);
  }
  const double rate = a.rate.get() / static_cast<double>(*a.step);
  const double change = mean / (sqrt(power) + a.epsilon.get()) + a.decay.get() * parameter;
  parameter = static_cast<float>(parameter - rate * change);
  if (a.copy.data) *a.copy.at(row, column) = parameter;
}

}  // namespace planq::step14
