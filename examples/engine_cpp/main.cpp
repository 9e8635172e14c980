// engine [--cuda] FILE TENSOR: quantizes a weight of a safetensors file as an engine does when it
// loads a model, and activations as it does in every step. Prints SHA-256 digests of the results.
#include <cstdio>
#include <exception>

#include "plan.h"
#include "safetensors.h"
#include "sha256.h"

namespace engine {
namespace {

constexpr std::int64_t kMostRows = 64;

std::string descriptor(const std::string& rows, const StoredTensor& weight, const char* output,
                       const char* scope) {
  return R"({"op": "dynamic_range_quantize", "shape": [)" + rows + ", " +
         std::to_string(weight.shape[1]) + R"(], "input_dtype": ")" + weight.dtype +
         R"(", "output_dtype": ")" + output + R"(", "scope": )" + scope + "}";
}

void print(const std::string& what, const std::map<std::string, Tensor>& outputs) {
  for (const auto& [name, tensor] : outputs)
    std::printf("%s  %s.%s\n", Sha256::of(tensor.memory.download()).c_str(), what.c_str(),
                name.c_str());
}

void quantize_weight(const planq_stream& stream, const StoredTensor& weight, Tensor& input) {
  const std::string rows = std::to_string(weight.shape[0]);
  const struct {
    const char *name, *output, *scope;
  } schemes[] = {{"channel", "int8", R"({"kind": "channel", "axis": 0})"},
                 {"group128", "int4", R"({"kind": "group", "axis": 1, "size": 128})"}};
  for (const auto& [name, output, scope] : schemes) {
    Plan plan(stream, descriptor(rows, weight, output, scope));
    std::map<std::string, Tensor> outputs = plan.outputs({});
    plan.run(input, outputs);
    std::fprintf(stderr, "%s: %s\n", name, plan.sku().c_str());
    print(name, outputs);
  }
}

// One plan for every number of rows. The weight's own rows stand for activations.
void quantize_activations(const planq_stream& stream, const StoredTensor& weight, bool on_gpu) {
  const std::string rows = R"({"dim": "m", "max": )" + std::to_string(kMostRows) + "}";
  Plan plan(stream, descriptor(rows, weight, "int8", R"({"kind": "token"})"));
  std::fprintf(stderr, "activations: %s\n", plan.sku().c_str());
  for (const std::int64_t m : {std::int64_t{1}, std::int64_t{7}, kMostRows}) {
    if (m > weight.shape[0]) continue;
    Tensor input(weight.dtype, {m, weight.shape[1]}, on_gpu);
    input.memory.upload(weight.data);
    std::map<std::string, Tensor> outputs = plan.outputs({{"m", m}});
    plan.run(input, outputs);
    print("activations" + std::to_string(m), outputs);
  }
}

void run(const std::string& path, const std::string& name, bool on_gpu) {
  const Safetensors file(path);
  const StoredTensor& weight = file.at(name);
  if (weight.shape.size() != 2) throw std::runtime_error(name + " is no floating matrix");
#if !defined(ENGINE_CUDA)
  if (on_gpu) throw std::runtime_error("this engine was built without CUDA");
#endif
  const planq_stream stream = on_gpu ? planq_cuda_stream(nullptr, 0) : planq_host_stream(2);
  Tensor input(weight.dtype, weight.shape, on_gpu);
  input.memory.upload(weight.data);
  quantize_weight(stream, weight, input);
  quantize_activations(stream, weight, on_gpu);
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
