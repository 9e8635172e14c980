// reorder_mixed_dtype_weight on CUDA.

#include "cuda/launch.cuh"
#include "ops/packing/reorder_mixed_dtype_weight/desc.h"
#include "ops/packing/reorder_mixed_dtype_weight/tiles.cuh"

namespace planq::reorder_mixed_dtype_weight {

namespace {

using std::int64_t;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class L>
class Launch {
 public:
  Launch(const Fields& fields, const Operands& operands, Bound& bound)
      : weight_(fields, operands), inverse_(fields.inverse), bound_(bound) {
    args_.input = static_cast<const std::uint8_t*>(operands[kInput].data);
    args_.output = static_cast<std::uint8_t*>(operands[kOutput].data);
    args_.rows = weight_.rows;
    args_.columns = weight_.columns;
    args_.chunks = weight_.rows / kChunk;
    args_.matrix_stride = weight_.matrix.strides[0];
    args_.layout_stride = weight_.reordered.strides[0];
    args_.row_bytes = weight_.columns / L::kPerByte;
    args_.bytes = weight_.rows * args_.row_bytes;
    args_.transposed = weight_.transposed;
  }

  Status run() {
    if (weight_.empty()) return Status::success();
    if (!aligned() || args_.bytes / 16 > cuda::kMaxIndex)
      return start(inverse_ ? reorder_bytes<L, true> : reorder_bytes<L, false>,
                   ceil_div(args_.bytes, kThreads));
    set_vectors();
    if (weight_.transposed)
      return start(inverse_ ? reorder_vectors<L, true> : reorder_vectors<L, false>,
                   ceil_div(args_.vectors, kThreads * kVectorsAThread));
    const int64_t across = ceil_div(args_.columns, Tile<L>::kColumns);
    args_.tiles_across = static_cast<std::uint32_t>(across);
    return start(inverse_ ? restore_tiles<L> : reorder_tiles<L>,
                 across * ceil_div(args_.chunks, Tile<L>::kChunks));
  }

 private:
  Status start(void (*kernel)(Args), int64_t blocks) const {
    return cuda::launch(kernel, {blocks, kThreads}, args_, bound_);
  }
  // Whether every row of both operands begins where a vector does.
  bool aligned() const {
    return reinterpret_cast<std::uintptr_t>(args_.input) % 16 == 0 &&
           reinterpret_cast<std::uintptr_t>(args_.output) % 16 == 0 &&
           args_.matrix_stride % 16 == 0 && args_.layout_stride % 16 == 0;
  }
  // Rows that follow one another are one row.
  void set_vectors() {
    const bool joined = args_.layout_stride == args_.row_bytes;
    args_.vectors = static_cast<std::uint32_t>(args_.bytes / 16);
    args_.row_vectors =
        cuda::Divider(joined ? args_.vectors : static_cast<std::uint32_t>(args_.row_bytes / 16));
    args_.chunk_count = cuda::Divider(static_cast<std::uint32_t>(args_.chunks));
  }

  Weight weight_;
  bool inverse_;
  Bound& bound_;
  Args args_{};
};

template <class L>
Status prepare(const Descriptor& descriptor, const Device&, State&) {
  const Fields& f = descriptor.as<Fields>();
  PLANQ_TRY(cuda::preload(f.inverse ? reorder_bytes<L, true> : reorder_bytes<L, false>));
  if (f.transpose)
    return cuda::preload(f.inverse ? reorder_vectors<L, true> : reorder_vectors<L, false>);
  return cuda::preload(f.inverse ? restore_tiles<L> : reorder_tiles<L>);
}

template <class L>
Status bind(const Call& call, Bound& bound) {
  return Launch<L>(call.fields<Fields>(), call.operands, bound).run();
}

template <DType kDType>
constexpr Kernel make_kernel() {
  return {.op = "reorder_mixed_dtype_weight",
          .body = "tiles",
          .dtypes = kDTypes<kDType, DType::UInt8>,
          .revision = 1,
          .backend = Backend::Cuda,
          .arch = {80},
          .rank = 0,
          .guarantee = kGuarantee,
          .rejects = rejects<kDType>,
          .workspace = no_workspace,
          .prepare = prepare<Layout<kDType>>,
          .bind = bind<Layout<kDType>>};
}

constexpr Kernel kKernels[] = {
    make_kernel<DType::Int8>(),
    make_kernel<DType::Int4>(),
};

}  // namespace
}  // namespace planq::reorder_mixed_dtype_weight

PLANQ_KERNELS(reorder_mixed_dtype_weight, cuda, kKernels);
