// What the group operators share: groups are `group_size` consecutive elements of the flat tensor,
// the last of which may be shorter, and have parameters in DeepSpeed's layout.
#pragma once

#include <cmath>

#include "core/flat.h"
#include "core/operands.h"
#include "ops/group/arithmetic.h"

namespace planq {

constexpr math::GroupForm form_of(Mode mode, Convention convention) {
  if (convention == Convention::DeepSpeedIntx) return math::GroupForm::Intx;
  return mode == Mode::Symmetric ? math::GroupForm::Symmetric : math::GroupForm::Asymmetric;
}

// How a tensor is cut, and what becomes of its groups.
struct Grouping {
  Shape shape;
  math::GroupSpec spec;
  std::int64_t elements, size, groups;

  Grouping(const Shape& tensor, std::int64_t group_size, Mode mode, Convention convention,
           DType codes)
      : shape(tensor),
        spec{form_of(mode, convention), bits_of(codes)},
        elements(tensor.elements()),
        size(group_size),
        groups(groups_of(elements, group_size)) {}

  bool is_four_bit() const { return spec.bits == 4; }
  bool is_intx() const { return spec.form == math::GroupForm::Intx; }
  // Groups that are worked on together, so that no byte has codes of two workers.
  std::int64_t groups_of_unit() const { return is_four_bit() && size % 2 == 1 ? 2 : 1; }
  std::int64_t units() const { return groups_of(groups, groups_of_unit()); }
};

// Where the codes and parameters of groups go. A hierarchical all-to-all among `nodes` of `devices`
// each, in `slices` that follow one another, has groups in runs, by slice, device and node.
struct GroupOrder {
  std::int64_t slices = 1, nodes = 1, devices = 1;
  std::int64_t run = 0;  // groups that stay together; 0: all do

  PLANQ_HD std::int64_t place(std::int64_t group) const {
    if (run == 0) return group;
    const std::int64_t runs = group / run, partition = runs / slices;
    const std::int64_t slice = runs - partition * slices;
    const std::int64_t node = partition / devices, device = partition - node * devices;
    return ((slice * devices + device) * nodes + node) * run + (group - runs * run);
  }
};

// Whether an operator that may have error feedback has it.
template <class Fields>
bool has_feedback(const Fields& f) {
  return !std::isnan(f.error_feedback);
}

// Where the errors of error feedback are, flat and in the order of the codes, and how they go on.
struct GroupFeedback {
  void* errors = nullptr;
  bool is_half = false;    // they are float16; else float32
  bool sums_half = false;  // so is what becomes codes
  math::ErrorShares shares;

  GroupFeedback() = default;
  template <class Fields>
  GroupFeedback(const Fields& f, const OperandView& view)
      : errors(view.data),
        is_half(f.error_dtype == DType::Float16),
        sums_half(f.sum_dtype == DType::Float16) {
    shares.kept = static_cast<float>(f.error_feedback);
    shares.lost = 1.0f - shares.kept;
  }
};

// What is asked for of an encoder of elements, whichever operator asks.
struct GroupEncoding {
  Grouping grouping;
  Shape output_shape;  // of codes that have a byte each
  GroupOrder order;
  bool measured = true;
  GroupFeedback feedback = {};
};

// Multiplier, and offset beside it.
constexpr Rule parameter_columns() { return when(is("mode", Mode::Asymmetric), 2, 1); }

// Of DEEPSPEED; DEEPSPEED_INTX has divisors and minima.
constexpr OperandLine group_parameters(const Rule& role) {
  return {"parameters", role, DType::Float32,
          axes(groups_of(elements_of("shape"), "group_size"), parameter_columns()),
          !is("convention", Convention::DeepSpeedIntx)};
}
constexpr OperandLine intx_parameter(const char* name, const Rule& role, const char* dtype) {
  return {name, role, dtype, groups_of(elements_of("shape"), "group_size"),
          is("convention", Convention::DeepSpeedIntx)};
}

// The same in memory. T: the type of the elements.
template <class T>
struct GroupMemory {
  float* rows = nullptr;
  std::int64_t row_stride = 1;
  T *scale = nullptr, *minimum = nullptr;

  GroupMemory() = default;
  GroupMemory(const OperandView& parameters, const OperandView& scales, const OperandView& minima)
      : rows(static_cast<float*>(parameters.data)),
        row_stride(parameters.strides[0]),
        scale(static_cast<T*>(scales.data)),
        minimum(static_cast<T*>(minima.data)) {}

  PLANQ_HD math::GroupPair load(math::GroupForm form, std::int64_t group) const {
    if (form == math::GroupForm::Intx)
      return {math::widen(scale[group]), math::widen(minimum[group])};
    const float* row = rows + group * row_stride;
    return {row[0], form == math::GroupForm::Symmetric ? 0.0f : row[1]};
  }
  PLANQ_HD void store(math::GroupForm form, std::int64_t group,
                      const math::GroupScale& value) const {
    if (form == math::GroupForm::Intx) {
      scale[group] = math::narrow<T>(value.stored);
      minimum[group] = math::narrow<T>(value.offset);
      return;
    }
    float* row = rows + group * row_stride;
    row[0] = value.stored;
    if (form == math::GroupForm::Asymmetric) row[1] = value.offset;
  }
};

// Codes of several ranks and their parameters, flat: what a sum over ranks is made of.
struct RankedCodes {
  const std::uint8_t* codes = nullptr;
  const float* parameters = nullptr;
  std::int64_t rank_bytes = 0, rank_floats = 0, row_stride = 1;
  std::int64_t size = 1;  // of a group
  int ranks = 1;
  math::GroupForm form = math::GroupForm::Symmetric;
  bool mean = false;

  RankedCodes() = default;
  RankedCodes(const Grouping& grouping, const OperandView& input, const OperandView& stored,
              std::int64_t rank_count, bool mean_wanted)
      : codes(static_cast<const std::uint8_t*>(input.data)),
        parameters(static_cast<const float*>(stored.data)),
        rank_bytes(input.strides[0]),
        rank_floats(stored.strides[0]),
        row_stride(stored.strides[1]),
        size(grouping.size),
        ranks(static_cast<int>(rank_count)),
        form(grouping.spec.form),
        mean(mean_wanted) {}

  PLANQ_HD math::GroupPair load(int rank, std::int64_t group) const {
    const float* row = parameters + rank * rank_floats + group * row_stride;
    return {row[0], form == math::GroupForm::Symmetric ? 0.0f : row[1]};
  }
};

}  // namespace planq
