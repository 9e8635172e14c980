// The CUDA kernels of the family, on a processor: see tests/support/emulated.
#include <vector>

#include "cuda/launch.cuh"
#define PLANQ_ELEMENT BFloat16
#include "ops/gather/argmax/cuda.cuh"
#include "ops/gather/embedding/cuda.cuh"
#include "ops/gather/sample/cuda.cuh"

namespace {

using namespace planq;

// Operands in the order of the operator, as test_emulated_gathers.py fills them; one that is not
// there has no data.
struct Given {
  void* data;
  std::int64_t strides[kMaxRank];
  std::int32_t rank, dtype;
};

template <class Fields>
void run(const Fields& fields, const Given* given, std::size_t count,
         Status (*bind)(const Call&, Bound&)) {
  std::vector<OperandView> views(count);
  for (std::size_t i = 0; i < count; ++i) {
    views[i].data = given[i].data;
    views[i].rank = given[i].rank;
    views[i].dtype = static_cast<DType>(given[i].dtype);
    std::copy_n(given[i].strides, kMaxRank, views[i].strides.begin());
  }
  Descriptor descriptor;
  descriptor.as<Fields>() = fields;
  Device device;
  device.arch = 80;
  device.multiprocessors = 16;
  State state;
  Bound bound;
  if (!bind({descriptor, device, state, Operands(views), {}}, bound).ok()) std::abort();
}

Shape shape_of(const std::int64_t* extents, int rank) {
  Shape shape;
  shape.rank = rank;
  std::copy_n(extents, rank, shape.dims.begin());
  return shape;
}

}  // namespace

// Names of a table's types: their places in test_emulated_gathers.py.
extern "C" void embed(const std::int64_t* extents, int rank, std::int64_t table_rows, int table,
                      bool wide_index, std::int64_t group, int scale, bool high_first,
                      const Given* given) {
  constexpr DType kTypes[] = {DType::Float16, DType::BFloat16, DType::Float32, DType::Int8,
                              DType::Int4};
  embedding::Fields fields;
  fields.shape = shape_of(extents, rank);
  fields.table_rows = table_rows;
  fields.table_dtype = kTypes[table];
  fields.output_dtype = DType::BFloat16;
  fields.index_dtype = wide_index ? DType::Int64 : DType::Int32;
  if (group > 0) fields.scope = {ScopeKind::Group, rank - 1, group};
  if (table >= 3) fields.scale_dtype = kTypes[scale];
  fields.nibble_order = high_first ? NibbleOrder::HighFirst : NibbleOrder::LowFirst;
  constexpr Status (*kBinds[])(const Call&, Bound&) = {
      embedding::bind<DType::Float16>, embedding::bind<DType::BFloat16>,
      embedding::bind<DType::Float32>, embedding::bind<DType::Int8>, embedding::bind<DType::Int4>};
  run(fields, given, std::size(embedding::kOperands), kBinds[table]);
}

extern "C" void find_largest(const std::int64_t* extents, int rank, bool wide_output,
                             const Given* given) {
  argmax::Fields fields;
  fields.shape = shape_of(extents, rank);
  fields.input_dtype = DType::BFloat16;
  fields.output_dtype = wide_output ? DType::Int64 : DType::Int32;
  run(fields, given, std::size(argmax::kOperands), argmax::bind);
}

extern "C" void draw(const std::int64_t* extents, int rank, bool wide_output, const Given* given) {
  sample::Fields fields;
  fields.shape = shape_of(extents, rank);
  fields.input_dtype = DType::BFloat16;
  fields.output_dtype = wide_output ? DType::Int64 : DType::Int32;
  run(fields, given, std::size(sample::kOperands), sample::bind);
}
