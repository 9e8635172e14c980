// The CUDA kernels of the family, on a processor: see tests/support/emulated.
#include <vector>

#include "cuda/launch.cuh"
#define PLANQ_ELEMENT BFloat16
#include "call.h"
#include "ops/elementwise/add/cuda.cuh"
#include "ops/elementwise/unary/cuda.cuh"

namespace {

using namespace planq;

template <class Run>
void by_type(int type, const Run& run) {
  if (type == 0) run(std::integral_constant<DType, DType::Float16>{});
  if (type == 1) run(std::integral_constant<DType, DType::BFloat16>{});
  if (type == 2) run(std::integral_constant<DType, DType::Float32>{});
}

}  // namespace

extern "C" void run_unary(const Shape* shape, int function, int output_type, int multiprocessors,
                          const emulated::Given* given) {
  by_type(output_type, [&](auto type) {
    unary::Fields fields;
    fields.shape = *shape;
    fields.function = static_cast<UnaryFunction>(function);
    fields.input_dtype = DType::BFloat16;
    fields.output_dtype = type;
    emulated::run(fields, given, 2, multiprocessors, unary::bind<type.value>);
  });
}

// The scalar is the last operand.
extern "C" void run_add(const Shape* shape, int other_type, int output_type, int multiprocessors,
                        const emulated::Given* given) {
  by_type(output_type, [&](auto type) {
    add::Fields fields;
    fields.shape = *shape;
    fields.input_dtype = DType::BFloat16;
    fields.other_dtype = elementwise::kTypes[other_type];
    fields.output_dtype = type;
    emulated::run(fields, given, 4, multiprocessors, add::bind<type.value>);
  });
}
