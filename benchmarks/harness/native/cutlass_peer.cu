// int8 products of CUTLASS as a peer: the two tiles that do best on sm_90, each with scales of rows
// and columns applied in the same kernel (bfloat16 out) and without (int32 out). Needs the headers
// of CUTLASS 3 or 4 and sm_90a.
#include <cuda_runtime.h>

#include <cutlass/cutlass.h>

#include <cutlass/epilogue/thread/activation.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/version.h>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

namespace {

using cute::_0;
using cute::_1;
using cute::_128;
using cute::_2;
using cute::_256;
using cute::Shape;
using cute::Stride;
namespace fusion = cutlass::epilogue::fusion;
constexpr auto kRound = cutlass::FloatRoundStyle::round_to_nearest;

struct Cooperative {
  using Tile = Shape<_128, _256, _128>;
  using Cluster = Shape<_2, _1, _1>;
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
  using Epilogue = cutlass::epilogue::TmaWarpSpecializedCooperative;
};

struct PingPong {
  using Tile = Shape<_128, _128, _128>;
  using Cluster = Shape<_2, _1, _1>;
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  using Epilogue = cutlass::epilogue::TmaWarpSpecialized;
};

struct Problem {
  const void *a, *b;
  const float *row_scale, *column_scale;
  void* d;
  int m, n, k;
};

// float(accumulator) * scale of the row * scale of the column, rounded once more to bfloat16.
template <class Tile>
struct Scaled {
  using Element = cutlass::bfloat16_t;
  template <class Out>
  using Product = fusion::Sm90Compute<cutlass::multiplies, Out, float, kRound>;
  using Row = fusion::Sm90ColBroadcast<0, Tile, float, float, Stride<_1, _0, _0>>;
  using Column = fusion::Sm90RowBroadcast<0, Tile, float, float, Stride<_0, _1, _0>>;
  using ByRow = fusion::Sm90EVT<Product<float>, Row, fusion::Sm90AccFetch>;
  using Tree = fusion::Sm90EVT<Product<Element>, Column, ByRow>;

  static typename Tree::Arguments arguments(const Problem& p) {
    return {{p.column_scale, 1.0f, {}}, {{p.row_scale, 1.0f, {}}, {}, {}}, {}};
  }
};

template <class Tile>
struct Sums {
  using Element = int;
  using Copy = fusion::Sm90Compute<cutlass::epilogue::thread::Identity, int, int, kRound>;
  using Tree = fusion::Sm90EVT<Copy, fusion::Sm90AccFetch>;

  static typename Tree::Arguments arguments(const Problem&) { return {}; }
};

template <class Variant, template <class> class Output>
int run(const Problem& p, cudaStream_t stream) {
  using Tile = typename Variant::Tile;
  using Cluster = typename Variant::Cluster;
  using Out = Output<Tile>;
  using RowMajor = cutlass::layout::RowMajor;
  using TensorOp = cutlass::arch::OpClassTensorOp;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, TensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto,
      int, float, void, RowMajor, 4, typename Out::Element, RowMajor,
      16 / sizeof(typename Out::Element), typename Variant::Epilogue,
      typename Out::Tree>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, TensorOp, std::int8_t, RowMajor, 16, std::int8_t,
      cutlass::layout::ColumnMajor, 16, int, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      typename Variant::Mainloop>::CollectiveOp;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  static const cutlass::KernelHardwareInfo hardware = [] {
    cutlass::KernelHardwareInfo found;
    cudaGetDevice(&found.device_id);
    found.sm_count =
        cutlass::KernelHardwareInfo::query_device_multiprocessor_count(found.device_id);
    return found;
  }();
  const auto stride = [](auto kind, int rows, int columns) {
    return cutlass::make_cute_packed_stride(kind, cute::make_shape(rows, columns, 1));
  };
  typename Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {p.m, p.n, p.k, 1},
      {static_cast<const std::int8_t*>(p.a), stride(typename Kernel::StrideA{}, p.m, p.k),
       static_cast<const std::int8_t*>(p.b), stride(typename Kernel::StrideB{}, p.n, p.k)},
      {Out::arguments(p),
       nullptr,
       {},
       static_cast<typename Out::Element*>(p.d),
       stride(typename Kernel::StrideD{}, p.m, p.n)},
      hardware};
  if (Gemm::get_workspace_size(arguments) != 0) return -1;
  Gemm gemm;
  if (const auto status = gemm.can_implement(arguments); status != cutlass::Status::kSuccess)
    return static_cast<int>(status);
  return static_cast<int>(gemm(arguments, nullptr, stream));
}

}  // namespace

extern "C" {

// a[m, k] times b[n, k] transposed. With scales d is bfloat16, without (null) int32. Answers 0, or
// the status of CUTLASS.
int cutlass_peer_run(int tile, const void* a, const void* b, const float* row_scale,
                     const float* column_scale, void* d, int m, int n, int k, cudaStream_t stream) {
  const Problem problem{a, b, row_scale, column_scale, d, m, n, k};
  if (row_scale == nullptr)
    return tile == 0 ? run<Cooperative, Sums>(problem, stream)
                     : run<PingPong, Sums>(problem, stream);
  return tile == 0 ? run<Cooperative, Scaled>(problem, stream)
                   : run<PingPong, Scaled>(problem, stream);
}

// The tile's name, null from the first on that there is not, and the release of the headers.
const char* cutlass_peer_tile(int tile) {
  constexpr const char* kNames[] = {"128x256x128, cooperative", "128x128x128, ping-pong"};
  return tile < 2 ? kNames[tile] : nullptr;
}

int cutlass_peer_version() { return CUTLASS_MAJOR * 100 + CUTLASS_MINOR * 10 + CUTLASS_PATCH; }

}  // extern "C"
