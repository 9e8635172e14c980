// engine [--cuda] FILE TENSOR: quantizes a weight of a safetensors file as an engine does when it
// loads a model, and activations as it does in every step. Prints SHA-256 digests of the results.
#include <cstdio>
#include <exception>
#include <map>
#include <planq.hpp>

#include "memory.h"
#include "safetensors.h"
#include "sha256.h"

namespace engine {
namespace {

constexpr std::int64_t kMostRows = 64;

// A tensor in memory of the engine's own.
struct Buffer {
  Buffer(planq::DType dtype, const planq::Shape& shape, std::size_t bytes,
         const planq::Stream& stream)
      : memory(bytes, stream.backend == PLANQ_CUDA),
        tensor(memory.data(), dtype, shape, stream.memory()) {}

  Memory memory;
  planq::Tensor tensor;
};
using Outputs = std::map<std::string, Buffer>;

// The first rows of a weight, in memory for the stream.
Buffer upload(const StoredTensor& weight, std::int64_t rows, const planq::Stream& stream) {
  const std::int64_t columns = weight.shape[1];
  const auto bytes = static_cast<std::size_t>(rows * columns) * weight.dtype->bits / 8;
  Buffer made(*weight.dtype, {rows, columns}, bytes, stream);
  made.memory.upload(weight.data);
  return made;
}

// Runs a plan. The outputs have the types, the shapes and the bytes that the plan says.
Outputs run(const planq::Plan& plan, const planq::Stream& stream, const Buffer& input,
            const planq::Extents& extents = {}) {
  Outputs outputs;
  std::vector<planq::Operand> operands = {{"input", input.tensor}};
  for (const planq::OperandInfo& info : plan.operands(extents)) {
    if (info.role != planq::OperandInfo::Role::kOutput) continue;
    const auto made =
        outputs.try_emplace(info.name, info.storage, info.shape(), info.bytes(), stream);
    operands.emplace_back(info.name, made.first->second.tensor);
  }
  const Memory workspace(plan.workspace_size(extents), stream.backend == PLANQ_CUDA);
  plan.run(stream, {workspace.data(), workspace.bytes()}, operands);
#if defined(ENGINE_CUDA)
  // An engine keeps its workspace; this one frees it here, so it waits.
  if (stream.backend == PLANQ_CUDA) check(cudaDeviceSynchronize());
#endif
  return outputs;
}

void print(const std::string& what, const Outputs& outputs) {
  for (const auto& [name, output] : outputs)
    std::printf("%s  %s.%s\n", Sha256::of(output.memory.download()).c_str(), what.c_str(),
                name.c_str());
}

planq::Descriptor descriptor(const planq::Json& rows, const StoredTensor& weight,
                             planq::DType output, const planq::Scope& scope) {
  return planq::Descriptor("dynamic_range_quantize")
      .set("shape", {rows, weight.shape[1]})
      .set("input_dtype", *weight.dtype)
      .set("output_dtype", output)
      .set("scope", scope);
}

void quantize_weight(const planq::Stream& stream, const StoredTensor& weight) {
  const Buffer input = upload(weight, weight.shape[0], stream);
  const auto quantize = [&](const char* name, planq::DType output, const planq::Scope& scope) {
    const auto plan =
        planq::Plan::select(stream, descriptor(weight.shape[0], weight, output, scope));
    std::fprintf(stderr, "%s: %s\n", name, plan.sku().c_str());
    print(name, run(plan, stream, input));
  };
  quantize("channel", planq::dtypes::int8, planq::Scope::channel(0));
  quantize("group128", planq::dtypes::int4, planq::Scope::group(128));
}

// One plan for every number of rows. The weight's own rows stand for activations.
void quantize_activations(const planq::Stream& stream, const StoredTensor& weight) {
  const auto plan = planq::Plan::select(
      stream,
      descriptor(planq::Dim("m", kMostRows), weight, planq::dtypes::int8, planq::Scope::token()));
  std::fprintf(stderr, "activations: %s\n", plan.sku().c_str());
  for (const std::int64_t m : {std::int64_t{1}, std::int64_t{7}, kMostRows}) {
    if (m > weight.shape[0]) continue;
    const Buffer input = upload(weight, m, stream);
    print("activations" + std::to_string(m), run(plan, stream, input, {{"m", m}}));
  }
}

void run(const std::string& path, const std::string& name, bool on_gpu) {
  const Safetensors file(path);
  const StoredTensor& weight = file.at(name);
  if (!weight.dtype || weight.shape.size() != 2)
    throw std::runtime_error(name + " is no floating matrix");
#if !defined(ENGINE_CUDA)
  if (on_gpu) throw std::runtime_error("this engine was built without CUDA");
#endif
  const auto stream = on_gpu ? planq::Stream::cuda(nullptr, 0) : planq::Stream::host(2);
  quantize_weight(stream, weight);
  quantize_activations(stream, weight);
}

}  // namespace
}  // namespace engine

int main(int count, char** words) {
  const bool on_gpu = count > 1 && std::string(words[1]) == "--cuda";
  if (count != (on_gpu ? 4 : 3)) {
    std::fprintf(stderr, "usage: engine [--cuda] FILE TENSOR\n");
    return 2;
  }
  try {
    engine::run(words[count - 2], words[count - 1], on_gpu);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "engine: %s\n", error.what());
    return 1;
  }
  return 0;
}
