// The CUDA kernels for small weights, on a processor: see tests/support/emulated.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#include "arrivals.h"
#include "call.h"
#include "cuda/launch.cuh"
#include "ops/gguf/linear_gguf/small_launch.cuh"
#include "ops/gguf/linear_gguf_merged/desc.h"
#include "ops/linear/gemm.cpp"
#include "watched.h"

using namespace planq;
using namespace planq::linear_gguf_merged;

namespace {

OperandView view_of(const emulated::Given& given, DType dtype) {
  OperandView view;
  view.data = given.data;
  view.rank = given.rank;
  view.dtype = dtype;
  std::copy_n(given.strides, std::size(given.strides), view.strides.begin());
  return view;
}

}  // namespace

// Whether the kernels take m rows of codes with a weight of this type, a number, of shape (n, k).
extern "C" bool takes(int type, std::int64_t m, std::int64_t n, std::int64_t k) {
  linear::Gemm gemm;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  return linear_gguf::takes_small_weight(static_cast<GgufType>(type), gemm);
}

// Types as numbers; operands in the order of linear_gguf_merged, and the weights. `follows`: a
// step of the same plan is before. Returns the number of launches; 0, where the kernels do not take
// all of the products.
extern "C" int multiply(const Shape* input_shape, int count, const Shape* weight_shapes,
                        const std::int64_t* types, const int* dtypes, const emulated::Given* given,
                        const emulated::Given* weights, bool follows, int multiprocessors,
                        int shared_memory) {
  Fields fields;
  fields.input_shape = *input_shape;
  fields.weight_shapes = {weight_shapes, count};
  fields.types = {{types, count}};
  fields.input_dtype = static_cast<DType>(dtypes[kInput]);
  fields.output_dtype = static_cast<DType>(dtypes[kOutput]);
  fields.bias_dtype = static_cast<DType>(dtypes[kBias]);
  fields.residual_dtype = static_cast<DType>(dtypes[kResidual]);
  std::vector<OperandView> members, views;
  for (int i = 0; i < count; ++i) members.push_back(view_of(weights[i], DType::UInt8));
  for (std::size_t i = 0; i < std::size(kOperands); ++i)
    views.push_back(view_of(given[i], static_cast<DType>(dtypes[i])));
  views[kWeight].members = members.data();
  Descriptor descriptor;
  descriptor.as<Fields>() = fields;
  Device device;
  device.multiprocessors = multiprocessors;
  device.shared_memory_per_block = static_cast<std::size_t>(shared_memory);
  const State state{};
  const Products products({descriptor, device, state, Operands(views), {}});
  const bool codes = fields.input_dtype == DType::Int8;
  const bool taken =
      codes ? std::ranges::all_of(products.all(),
                                  [](const gguf::Product& product) {
                                    return product.gemm.empty() || linear_gguf::takes_small_weight(
                                                                       product.type, product.gemm);
                                  })
            : linear_gguf::takes_small_floats(products.all());
  if (!taken) return 0;
  cuda::launches() = 0;
  // Numbers that a kernel reads before it writes them are no numbers.
  std::memset(cuda::dynamic_shared(), 0xFF, std::size_t{227} << 10);
  Bound bound;
  emulated::begin(bound, follows);
  if (!linear_gguf::launch_small_weights(products.all(), device, bound).ok()) std::abort();
  return cuda::launches();
}
