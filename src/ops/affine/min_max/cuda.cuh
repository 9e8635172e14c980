// min_max on CUDA: one kernel for each way to read a tensor, all of them by
// ops/affine/ranges/cuda.h.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "core/sku.h"
#include "cuda/element.cuh"
#include "ops/affine/min_max/desc.h"
#include "ops/affine/ranges/cuda.h"

namespace planq::min_max {
namespace {

using cuda::RangeMethod;
using cuda::RangePlan;
using In = cuda::Element;
constexpr DType kIn = cuda::kElement;

struct BodyInfo {
  std::string_view name;
  std::int16_t rank;
};
constexpr BodyInfo kBodies[] = {{"columns", 10}, {"split", 20}, {"rows", 30}};
constexpr const BodyInfo& info(RangeMethod method) {
  return kBodies[static_cast<std::size_t>(method)];
}

template <class... Pieces>
Reason refuse_shape(const Pieces&... pieces) {
  return Reason::refuse(ReasonKind::Shape, pieces...);
}

template <RangeMethod kMethod>
Reason rejects(const Descriptor& descriptor, const Device& device) {
  const Fields& f = descriptor.as<Fields>();
  if (f.input_dtype != kIn)
    return Reason::refuse(ReasonKind::DType, "measures input_dtype ", name_of(kIn), ", not ",
                          name_of(f.input_dtype));
  const RangeProblem problem = problem_of(f);
  std::int64_t inner = 1;
  const bool columns = kMethod != RangeMethod::Rows && cuda::reads_columns(problem, inner);
  if (kMethod == RangeMethod::Columns && !columns)
    return refuse_shape("segments do not lie side by side");
  if (kMethod == RangeMethod::Split && columns)
    return refuse_shape("segments lie side by side, as columns");
  if (kMethod == RangeMethod::Split &&
      !cuda::shares_segments(cuda::plan_ranges(problem, device, kMethod)))
    return refuse_shape("segments are as many or as short as a block each takes");
  return Reason::accept();
}

template <RangeMethod kMethod>
std::size_t workspace(const Descriptor& descriptor, const Device& device) {
  Scratch scratch;
  book_ranges(cuda::plan_ranges(problem_of(descriptor.as<Fields>()), device, kMethod), scratch);
  return scratch.bytes();
}

std::size_t largest_workspace(const Descriptor& descriptor, const Device& device) {
  return cuda::largest_ranges(problem_of(descriptor.as<Fields>()), device);
}

Status prepare(const Descriptor&, const Device&, State&) { return cuda::preload_ranges<In>(); }

template <RangeMethod kMethod>
Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  const RangePlan plan = cuda::plan_ranges(problem_of(f), call.device, kMethod);
  Scratch scratch(call.workspace);
  return cuda::launch_ranges<In>(plan, ranges_of(f, call.operands), book_ranges(plan, scratch),
                                 bound);
}

template <RangeMethod kMethod>
constexpr Kernel make_kernel() {
  return {
      .op = "min_max",
      .body = info(kMethod).name,
      .dtypes = kDTypes<kIn, compute_dtype(kIn)>,
      .revision = 1,
      .backend = Backend::Cuda,
      .arch = {80, 9999},
      .rank = info(kMethod).rank,
      .guarantee = guarantee<math::Compute<In>>(),
      .rejects = rejects<kMethod>,
      .workspace = workspace<kMethod>,
      .prepare = prepare,
      .bind = bind<kMethod>,
      .largest_workspace = kMethod == RangeMethod::Rows ? nullptr : largest_workspace,
  };
}

constexpr Kernel kKernels[] = {make_kernel<RangeMethod::Columns>(),
                               make_kernel<RangeMethod::Split>(), make_kernel<RangeMethod::Rows>()};

}  // namespace

}  // namespace planq::min_max
