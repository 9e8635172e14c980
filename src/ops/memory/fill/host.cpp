// fill on the host: the bits of the number, repeated.

#include <algorithm>
#include <cstdint>

#include "core/sku.h"
#include "ops/memory/elements_host.h"
#include "ops/memory/fill/desc.h"
#include "ops/memory/numbers.h"

namespace planq::fill {
namespace {

template <DType kType>
Status compute(const Call& call, const Stream& stream) {
  using Memory = typename memory::Number<kType>::Memory;
  using Given = memory::Given<kType>;
  const OperandView& output = call.operands[kOutput];
  const Memory stored = Given::stored(Given(call.operands[kValue]).get());
  const ElementLayout layout =
      element_layout(call.fields<Fields>().shape, Scope{}, {ElementOperand{&output}});
  memory::each_row(layout, stream.threads,
                   [&](const ElementOffsets& at, std::int64_t count, std::int64_t) {
                     std::fill_n(static_cast<Memory*>(output.data) + at.at[0], count, stored);
                   });
  return Status::success();
}

constexpr auto kKernels = memory::kernels_of_all([](auto type) -> Kernel {
  constexpr DType kType = type.value;
  return {
      .op = "fill",
      .body = "elements",
      .dtypes = kDTypes<kType, kType>,
      .revision = 1,
      .backend = Backend::Host,
      .arch = {},
      .rank = 0,
      .guarantee = memory::kElementGuarantee<MathPrecision::None, memory::scalar_dtype(kType),
                                             !memory::is_integer(kType)>,
      .rejects = memory::rejects_other_output<Fields, kType>,
      .workspace = no_workspace,
      .prepare = nothing_to_prepare,
      .bind = host::bind<compute<kType>>,
  };
});

}  // namespace

}  // namespace planq::fill

PLANQ_KERNELS(fill, host, kKernels);
