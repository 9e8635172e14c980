// The CUDA kernels of the operator for codes, on a processor: see tests/support/emulated.
#include <cstdlib>
#include <iterator>
#include <vector>

#include "arrivals.h"
#include "call.h"
#include "cuda/launch.cuh"
#include "ops/gguf/linear_gguf/few_rows_launch.cuh"
#include "ops/gguf/linear_gguf/tiles_launch.cuh"
#include "ops/linear/gemm.cpp"
#include "watched.h"

using namespace planq;
using namespace planq::linear_gguf;

namespace {

// One type of each way to read codes and scales: what the others have of their own is compared on a
// GPU, and compiling them takes long.
template <class Use>
void with_block(GgufType type, const Use& use) {
  switch (type) {
    case GgufType::Q8_0:
      return use(gguf::Block<GgufType::Q8_0>{});
    case GgufType::Q5_K:
      return use(gguf::Block<GgufType::Q5_K>{});
    case GgufType::Q6_K:
      return use(gguf::Block<GgufType::Q6_K>{});
    case GgufType::Q2_K:
      return use(gguf::Block<GgufType::Q2_K>{});
    case GgufType::Iq2Xs:
      return use(gguf::Block<GgufType::Iq2Xs>{});
    case GgufType::Iq3S:
      return use(gguf::Block<GgufType::Iq3S>{});
    case GgufType::Iq1M:
      return use(gguf::Block<GgufType::Iq1M>{});
    default:
      std::abort();
  }
}

// The kernels, as test_emulated_products.py numbers them.
enum class Body { FewRows, ManyRows };

template <class B>
Status launch(Body body, const linear::Gemm& gemm, const Device& device, Bound& bound) {
  if (body == Body::ManyRows) return launch_many_rows<B>(gemm, device, bound);
  return launch_few_rows<B>(gemm, device, bound);
}

}  // namespace

// Types as numbers; operands in the order of the operator. `follows`: a step of the same plan is
// before.
extern "C" void multiply(const Shape* input_shape, const Shape* weight_shape, int type,
                         const int* dtypes, Body body, int multiprocessors, int arch,
                         int shared_memory, const emulated::Given* given, bool follows) {
  Fields fields;
  fields.input_shape = *input_shape;
  fields.weight_shape = *weight_shape;
  fields.type = static_cast<GgufType>(type);
  fields.input_dtype = DType::Int8;
  fields.output_dtype = static_cast<DType>(dtypes[kOutput]);
  fields.bias_dtype = static_cast<DType>(dtypes[kBias]);
  fields.residual_dtype = static_cast<DType>(dtypes[kResidual]);
  OperandView views[std::size(kOperands)];
  for (std::size_t i = 0; i < std::size(kOperands); ++i) {
    views[i].data = given[i].data;
    views[i].rank = given[i].rank;
    views[i].dtype = static_cast<DType>(dtypes[i]);
    std::copy_n(given[i].strides, 3, views[i].strides.begin());
  }
  Descriptor descriptor;
  descriptor.as<Fields>() = fields;
  Device device;
  device.arch = arch;
  device.multiprocessors = multiprocessors;
  device.shared_memory_per_block = shared_memory;
  const State state{};
  const linear::Gemm gemm = gemm_of({descriptor, device, state, Operands(views), {}});
  with_block(fields.type, [&](auto block) {
    using B = decltype(block);
    Bound bound;
    emulated::begin(bound, follows);
    if (!launch<B>(body, gemm, device, bound).ok()) std::abort();
  });
}
