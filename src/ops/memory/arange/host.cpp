// arange on the host: each element from its index.

#include <cstdint>

#include "core/sku.h"
#include "ops/memory/arange/desc.h"
#include "ops/memory/arange/progression.h"
#include "ops/memory/elements_host.h"
#include "ops/memory/numbers.h"

namespace planq::arange {
namespace {

template <DType kType>
Status compute(const Call& call, const Stream& stream) {
  using Memory = typename memory::Number<kType>::Memory;
  const OperandView& output = call.operands[kOutput];
  const Progression<kType> numbers = Ends<kType>(call.operands).get();
  const ElementLayout layout =
      element_layout(call.fields<Fields>().shape, Scope{}, {ElementOperand{&output}});
  memory::each_row(layout, stream.threads,
                   [&](const ElementOffsets& at, std::int64_t count, std::int64_t first) {
                     Memory* const to = static_cast<Memory*>(output.data) + at.at[0];
                     for (std::int64_t i = 0; i < count; ++i) to[i] = numbers.at(first + i);
                   });
  return Status::success();
}

constexpr auto kKernels = memory::kernels_of_all([](auto type) -> Kernel {
  constexpr DType kType = type.value;
  return {
      .op = "arange",
      .body = "elements",
      .dtypes = kDTypes<kType, kType>,
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = kGuarantee<kType>,
      .rejects = memory::rejects_other_output<Fields, kType>,
      .workspace = no_workspace,
      .prepare = nothing_to_prepare,
      .bind = host::bind<compute<kType>>,
  };
});

}  // namespace

}  // namespace planq::arange

PLANQ_KERNELS(arange, host, kKernels);
