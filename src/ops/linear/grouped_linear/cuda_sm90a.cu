// grouped_linear on sm_90a: the tiles of weight-only layers, or of layers of codes, of all experts
// in one launch.
#include "cuda/launch.cuh"
#include "ops/linear/grouped_linear/desc.h"
#include "ops/linear/grouped_linear/guarantee.h"
#include "ops/linear/grouped_linear/launch.h"
#include "ops/linear/sm90/experts_launch.h"
#include "ops/linear/sm90/groups_launch.h"

namespace planq::grouped_linear {
namespace {

namespace tiles = linear::sm90::groups::tiles;
namespace both = linear::sm90::experts;

template <DType kIn>
std::size_t workspace(const Descriptor& descriptor, const Device&) {
  const Fields& f = descriptor.as<Fields>();
  return are_input_codes(kIn) ? both::workspace(f.input_shape[0], f.experts())
                              : tiles::experts_workspace(f.input_shape[0], f.experts());
}

template <DType kIn>
Status prepare(const Descriptor& descriptor, const Device&, State&) {
  const Fields& f = descriptor.as<Fields>();
  PLANQ_TRY(preload_outputs(f.input_dtype));
  return are_input_codes(kIn) ? both::preload(kIn, f.code_dtype)
                              : tiles::preload_experts(kind_of(f));
}

// What tiles cannot read is computed an output at a time, with the same bits.
template <DType kIn>
Status bind(const Call& call, Bound& bound) {
  const linear::Experts experts = experts_of(call);
  if (experts.gemm.empty()) return Status::success();
  bool launched = false;
  bound.name_body(name_of(linear::sm90::Body::Tiles));
  PLANQ_TRY(are_input_codes(kIn) ? both::launch(experts, call, bound, launched)
                                 : tiles::launch_experts(experts, call, bound, launched));
  if (launched) return Status::success();
  bound.name_body("outputs");
  return launch_outputs(experts, bound);
}

template <DType kIn>
Reason rejects(const Descriptor& descriptor, const Device&) {
  return expect(ReasonKind::DType, "input_dtype", kIn, descriptor.as<Fields>().input_dtype);
}

template <DType kIn>
constexpr Kernel kernel() {
  return {.op = "grouped_linear",
          .arithmetic = name_of(accumulation_of(kIn)),
          .body = name_of(linear::sm90::Body::Tiles),
          .dtypes = kDTypes<kIn>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {90, 90},
          .rank = 50,
          .guarantee = guarantee_of<kIn>(),
          .rejects = rejects<kIn>,
          .workspace = workspace<kIn>,
          .prepare = prepare<kIn>,
          .bind = bind<kIn>};
}

constexpr std::array kKernels{kernel<DType::Float16>(), kernel<DType::BFloat16>(),
                              kernel<DType::Int8>(), kernel<DType::Float8E4M3FN>(),
                              kernel<DType::Float8E5M2>()};

}  // namespace
}  // namespace planq::grouped_linear

PLANQ_KERNELS(grouped_linear, cuda_sm90a, kKernels);
