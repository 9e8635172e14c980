// pipeline_copy on the host: rows of bytes.

#include <cstdint>
#include <cstring>

#include "ops/memory/elements_host.h"
#include "ops/memory/pipeline_copy/desc.h"

namespace planq::pipeline_copy {
namespace {

Status compute(const Call& call, const Stream& stream) {
  const auto* const input = static_cast<const std::byte*>(call.operands[kInput].data);
  auto* const output = static_cast<std::byte*>(call.operands[kOutput].data);
  const std::int64_t size = storage_bytes(call.fields<Fields>().input_dtype);
  memory::each_row(layout_of(call), stream.threads,
                   [&](const ElementOffsets& at, std::int64_t count, std::int64_t) {
                     std::memcpy(output + at.at[kOutput] * size, input + at.at[kInput] * size,
                                 static_cast<std::size_t>(count * size));
                   });
  return Status::success();
}

constexpr Kernel kKernels[] = {{
    .op = "pipeline_copy",
    .body = "rows",
    .revision = 1,
    .backend = Backend::Host,
    .arch = {},
    .rank = 0,
    .guarantee = kGuarantee,
    .rejects = accept,
    .workspace = no_workspace,
    .prepare = nothing_to_prepare,
    .bind = host::bind<compute>,
}};

}  // namespace

}  // namespace planq::pipeline_copy

PLANQ_KERNELS(pipeline_copy, host, kKernels);
