// coo_to_csr on CUDA: a thread searches for each row.

#include "ops/outlier/coo_to_csr/desc.h"
#include "ops/outlier/row_pointers.h"

namespace planq::coo_to_csr {
namespace {

using std::int64_t;

Status prepare(const Descriptor&, const Device&, State&) { return outlier::preload_pointers(); }

Status bind(const Call& call, Bound& bound) {
  const Fields& f = call.fields<Fields>();
  outlier::PointerArgs args{};
  args.row_index = static_cast<const std::int32_t*>(call.operands[kRowIndex].data);
  args.count = static_cast<const int64_t*>(call.operands[kCount].data);
  args.pointer = static_cast<std::int32_t*>(call.operands[kPointer].data);
  args.capacity = f.capacity;
  args.pointers = outlier::rows_of(f.shape) + 1;
  return outlier::launch_pointers(args, bound);
}

constexpr Kernel kKernels[] = {{.op = "coo_to_csr",
                                .body = "search",
                                .revision = 1,
                                .backend = Backend::Cuda,
                                .arch = {80},
                                .rank = 0,
                                .guarantee = kGuarantee,
                                .rejects = accept,
                                .workspace = no_workspace,
                                .prepare = prepare,
                                .bind = bind}};

}  // namespace
}  // namespace planq::coo_to_csr

PLANQ_KERNELS(coo_to_csr, cuda, kKernels);
