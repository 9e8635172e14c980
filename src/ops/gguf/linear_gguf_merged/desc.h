// linear_gguf_merged: linear layers of one input, whose weights are blocks of a GGUF file, each of
// its own type. Their outputs are columns of one tensor, side by side; their bits are those of
// linear_gguf.
#pragma once

#include <cstddef>
#include <span>

#include "ops/gguf/operand_lines.h"
#include "ops/gguf/products/kernels.h"
#include "ops/gguf/products/order.h"
#include "ops/gguf/products/product.h"
#include "ops/linear/gemm.h"

namespace planq::linear_gguf_merged {

// The most weights.
inline constexpr std::int64_t kMost = 8;

struct Fields {
  Shape input_shape;        // (..., m, k)
  ShapeList weight_shapes;  // (n, bytes of k elements) each
  EnumerationList<GgufType> types;
  DType input_dtype = DType::Unset;
  DType output_dtype = DType::Unset;
  DType bias_dtype = DType::Unset;
  DType residual_dtype = DType::Unset;

  linear::OperandField input() const { return {input_shape, input_dtype}; }
  std::int64_t columns(std::int64_t weight) const { return weight_shapes.data[weight][0]; }
  // The shape of a weight as numbers.
  Shape numbers(std::int64_t weight) const { return {2, {columns(weight), input_shape.last()}}; }
};

inline constexpr Field kFields[] = {
    PLANQ_FIELD(Fields, input_shape).required().from("input.shape"),
    PLANQ_FIELD(Fields, weight_shapes).required().from("weight.shape"),
    PLANQ_FIELD(Fields, types).required(),
    PLANQ_FIELD(Fields, input_dtype).required().from("input.dtype"),
    PLANQ_FIELD(Fields, output_dtype).required(),
    PLANQ_FIELD(Fields, bias_dtype).from("bias.dtype"),
    PLANQ_FIELD(Fields, residual_dtype).from("residual.dtype"),
};

constexpr Rule all_columns() { return axis_sum_of("weight_shapes", 0); }
constexpr Rule all_outputs() { return axes(leading("input_shape"), all_columns()); }

// Positions in Operands.
enum Operand : int { kInput, kWeight, kOutput, kInputScale, kBias, kResidual };
inline constexpr auto kOperands = operands(
    kFields,
    {tensor("input", Role::Input, "input_dtype", "input_shape"),
     list("weight", Role::Input, DType::UInt8, "weight_shapes"),
     tensor("output", Role::Output, "output_dtype", all_outputs()),
     tensor("input_scale", Role::Input, DType::Float32,
            with_axis("input_shape", -1, groups_of(last_of("input_shape"), gguf::kGroup)),
            is("input_dtype", DType::Int8)),
     tensor("bias", Role::Input, "bias_dtype", all_columns(), is_set("bias_dtype")),
     tensor("residual", Role::Input, "residual_dtype", all_outputs(), is_set("residual_dtype"))});

// The operands of a weight in a call: those of all weights are cut into columns.
struct Own {
  const OperandView& weight;
  OperandView output, bias, residual;

  // `first`: the first of its columns.
  Own(const Call& call, std::int64_t number, std::int64_t first)
      : weight(call.operands[kWeight].members[number]),
        output(cut(call, kOutput, number, first)),
        bias(cut(call, kBias, number, first)),
        residual(cut(call, kResidual, number, first)) {}

 private:
  static OperandView cut(const Call& call, Operand operand, std::int64_t number,
                         std::int64_t first) {
    OperandView view = call.operands[operand];
    if (!view.data) return view;
    view.data = static_cast<std::byte*>(view.data) + first * storage_bytes(view.dtype);
    view.extents[static_cast<std::size_t>(view.rank - 1)] = call.fields<Fields>().columns(number);
    return view;
  }
};

// Calls use(number, operands) for every weight; the first status that is none of success ends it.
template <class Use>
Status for_each_weight(const Call& call, const Use& use) {
  const Fields& f = call.fields<Fields>();
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < f.types.count; ++i) {
    if (const Status status = use(i, Own(call, i, first)); !status.ok()) return status;
    first += f.columns(i);
  }
  return Status::success();
}

// The products of a call.
class Products {
 public:
  explicit Products(const Call& call)
      : count_(static_cast<std::size_t>(call.fields<Fields>().types.count)) {
    for_each_weight(call, [&](std::int64_t i, const Own& own) {
      const Fields& f = call.fields<Fields>();
      products_[i] = {
          f.types[i],
          linear::make_gemm(
              f.input(), {f.numbers(i), DType::UInt8},
              {.input = &call.operands[kInput],
               .weight = &own.weight,
               .output = &own.output,
               .input_scale = f.input_dtype == DType::Int8 ? &call.operands[kInputScale] : nullptr,
               .bias = f.bias_dtype == DType::Unset ? nullptr : &own.bias,
               .residual = f.residual_dtype == DType::Unset ? nullptr : &own.residual})};
      return Status::success();
    });
  }

  std::span<const gguf::Product> all() const { return {products_, count_}; }

 private:
  gguf::Product products_[kMost];
  std::size_t count_;
};
static_assert(kMost <= gguf::kMostProducts);

// --- Kernels that are the products of linear_gguf, one for each weight ---------------------------

// By plans: see parts.cpp.
std::size_t workspace_of_products(const Descriptor& descriptor, const Device& device);
std::size_t prepared_workspace_of_products(const Descriptor& descriptor, const State& state);
Status prepare_products(const Descriptor& descriptor, const Device& device, State& state);
Status bind_products(const Call& call, Bound& bound);

// A backend may have another way to prepare and to bind, without a workspace.
template <DType kOutputType, Backend kBackend>
constexpr Kernel kernel_of_products(decltype(Kernel::prepare) prepare, decltype(Kernel::bind) bind,
                                    decltype(Kernel::workspace) workspace = no_workspace) {
  Kernel kernel = gguf::kernel_of_codes<Fields, kOutputType, kBackend>(
      "linear_gguf_merged", "parts", prepare, bind, workspace);
  kernel.rank = 1;
  return kernel;
}
template <DType kOutputType, Backend kBackend>
constexpr Kernel kernel_of_plans() {
  Kernel kernel = kernel_of_products<kOutputType, kBackend>(prepare_products, bind_products,
                                                            workspace_of_products);
  kernel.largest_workspace = workspace_of_products;
  kernel.prepared_workspace = prepared_workspace_of_products;
  return kernel;
}

// Of floats.
inline constexpr Guarantee kGuaranteeOfParts = gguf::guarantee_of_products(std::string_view(
    "the plans of dynamic_range_quantize and linear_gguf_merged of its codes, one after the "
    "other"));
template <Backend kBackend>
inline constexpr Kernel kKernelOfParts =
    gguf::kernel_of_parts<Fields, kBackend>("linear_gguf_merged", kGuaranteeOfParts);

}  // namespace planq::linear_gguf_merged
