// Faults as host kernels.
#pragma once

#include "host/bind.h"
#include "wrong.h"

namespace planq::wrong {

template <class Fault>
Status compute(const Call& call, const Stream& stream) {
  const Fault fault(call, stream.threads);
  for (std::int64_t i = 0; i < fault.count; ++i) fault(i);
  return Status::success();
}

template <class Fault>
constexpr Kernel on_host(Kernel kernel) {
  kernel.body = Fault::kName;
  kernel.bind = host::bind<compute<Fault>>;
  return kernel;
}

}  // namespace planq::wrong
