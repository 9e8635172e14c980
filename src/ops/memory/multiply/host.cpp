// multiply on the host: element by element.

#include <cstdint>

#include "core/sku.h"
#include "ops/memory/elements_host.h"
#include "ops/memory/multiply/desc.h"
#include "ops/memory/multiply/product.h"
#include "ops/memory/numbers.h"

namespace planq::multiply {
namespace {

template <DType kType>
Status compute(const Call& call, const Stream& stream) {
  using Own = memory::Number<kType>;
  using Memory = typename Own::Memory;
  const OperandView &input = call.operands[kInput], &other = call.operands[kOther];
  const OperandView& output = call.operands[kOutput];
  memory::each_row(layout_of(call), stream.threads,
                   [&](const ElementOffsets& at, std::int64_t count, std::int64_t) {
                     const auto* x = static_cast<const Memory*>(input.data) + at.at[kInput];
                     const auto* y = static_cast<const Memory*>(other.data) + at.at[kOther];
                     auto* const to = static_cast<Memory*>(output.data) + at.at[kOutput];
                     for (std::int64_t i = 0; i < count; ++i) to[i] = Own::product(x[i], y[i]);
                   });
  return Status::success();
}

constexpr auto kKernels = memory::kernels_of_all([](auto type) -> Kernel {
  constexpr DType kType = type.value;
  return {
      .op = "multiply",
      .body = "elements",
      .dtypes = kDTypes<kType, kType>,
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = kGuarantee<kType>,
      .rejects = rejects<kType>,
      .workspace = no_workspace,
      .prepare = nothing_to_prepare,
      .bind = host::bind<compute<kType>>,
  };
});

}  // namespace

}  // namespace planq::multiply

PLANQ_KERNELS(multiply, host, kKernels);
