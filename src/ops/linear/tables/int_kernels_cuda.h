// The CUDA kernels of operators that are a gemm of integer codes. For any GPU there is one that
// takes every gemm, and one for few rows; for sm_90a, one of wgmma. All have the same bits, so a
// call whose operands a kernel cannot read goes to the first. `Layer` is the operator's: see
// tables/int_kernels.h.
#pragma once

#include <array>

#include "ops/linear/sm80/launch.h"
#include "ops/linear/sm90/launch.h"
#include "ops/linear/tables/int_kernels.h"

namespace planq::cuda {

// ---- any GPU ---------------------------------------------------------------------------------

inline Reason accept_codes(const Descriptor&, const Device&) { return Reason::accept(); }
inline Status prepare_codes(const Descriptor&, const Device&, State&) {
  return linear::preload_sm80();
}
template <class Layer>
Status bind_codes(const Call& call, Bound& bound) {
  return linear::launch_sm80(Layer::gemm_of(call), call.device, bound);
}

template <class Layer>
Reason rejects_few_rows(const Descriptor& descriptor, const Device&) {
  const auto& f = descriptor.as<typename Layer::Fields>();
  return linear::takes_few_rows(f.input(), f.weight());
}
inline Status prepare_few_rows(const Descriptor&, const Device&, State&) {
  const Status status = linear::preload_sm80();
  return status.ok() ? linear::preload_few_rows() : status;
}
template <class Layer>
Status bind_few_rows(const Call& call, Bound& bound) {
  return linear::launch_few_rows(Layer::gemm_of(call), call.device, bound);
}

template <class Layer>
constexpr std::array<Kernel, 2> int_kernels() {
  return {{{.op = Layer::kName,
            .body = "mma",
            .revision = 1,
            .backend = Backend::Cuda,
            .arch = {80},
            .rank = 100,
            .guarantee = linear::kIntGuarantee<Layer>,
            .rejects = accept_codes,
            .workspace = no_workspace,
            .prepare = prepare_codes,
            .bind = bind_codes<Layer>},
           {.op = Layer::kName,
            .body = "few_rows",
            .revision = 1,
            .backend = Backend::Cuda,
            .arch = {80},
            .rank = 60,
            .guarantee = linear::kIntGuarantee<Layer>,
            .rejects = rejects_few_rows<Layer>,
            .workspace = no_workspace,
            .prepare = prepare_few_rows,
            .bind = bind_few_rows<Layer>}}};
}

// ---- sm_90a ----------------------------------------------------------------------------------

template <class Layer>
Reason rejects_int_wgmma(const Descriptor& descriptor, const Device&) {
  const auto& f = descriptor.as<typename Layer::Fields>();
  return linear::rejects_wgmma(f.input(), f.weight(), f.output_dtype);
}
inline Status prepare_int_wgmma(const Descriptor&, const Device&, State&) {
  return linear::preload_sm90();
}
template <class Layer, linear::sm90::Body kBody>
Status bind_int_wgmma(const Call& call, Bound& bound) {
  return linear::launch_sm90(Layer::gemm_of(call), kBody, call.device, bound);
}

template <class Layer, linear::sm90::Body kBody>
constexpr Kernel int_wgmma_kernel() {
  return {.op = Layer::kName,
          .body = name_of(kBody),
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {90, 90},
          .rank = rank_of(kBody),
          .guarantee = linear::kIntGuarantee<Layer>,
          .rejects = rejects_int_wgmma<Layer>,
          .workspace = no_workspace,
          .prepare = prepare_int_wgmma,
          .bind = bind_int_wgmma<Layer, kBody>};
}
template <class Layer>
constexpr std::array<Kernel, 3> int_wgmma_kernels() {
  using linear::sm90::Body;
  return {int_wgmma_kernel<Layer, Body::Fastest>(), int_wgmma_kernel<Layer, Body::Tiles>(),
          int_wgmma_kernel<Layer, Body::FewRows>()};
}

}  // namespace planq::cuda
