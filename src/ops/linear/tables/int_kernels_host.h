// The host kernel of operators that are a gemm of integer codes. `Layer` is the operator's: see
// tables/int_kernels.h.
#pragma once

#include <array>

#include "host/bind.h"
#include "ops/linear/host/gemm.h"
#include "ops/linear/tables/int_kernels.h"

namespace planq::host {

inline Reason accept_codes(const Descriptor&, const Device&) { return Reason::accept(); }

template <class Layer>
Status compute_codes(const Call& call, const Stream& stream) {
  multiply(Layer::gemm_of(call), stream.threads);
  return Status::success();
}

template <class Layer>
constexpr std::array<Kernel, 1> int_kernels() {
  return {{{.op = Layer::kName,
            .body = "tiles",
            .revision = 1,
            .backend = Backend::Host,
            .arch = {},
            .rank = 0,
            .guarantee = linear::kIntGuarantee<Layer>,
            .rejects = accept_codes,
            .workspace = no_workspace,
            .prepare = nothing_to_prepare,
            .bind = bind<compute_codes<Layer>>}}};
}

}  // namespace planq::host
