// planq's C functions with C++ lifetimes: an engine writes this once.
#pragma once

#include <planq.h>

#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "json.h"
#include "memory.h"

namespace engine {

inline void check(planq_code code) {
  if (code != PLANQ_OK)
    throw std::runtime_error(std::string(planq_code_name(code)) + ": " + planq_last_error());
}

// A tensor of the engine's: its memory, and how DLPack describes it.
struct Tensor {
  Tensor(const std::string& dtype, std::vector<std::int64_t> extents, bool on_gpu)
      : shape(std::move(extents)), memory(bytes_of(dtype), on_gpu), gpu(on_gpu) {
    described.data = memory.data();
    described.device.device_type = static_cast<decltype(described.device.device_type)>(gpu ? 2 : 1);
    described.ndim = static_cast<std::int32_t>(shape.size());
    described.dtype = {type_of(dtype).first, static_cast<std::uint8_t>(type_of(dtype).second * 8),
                       1};
    described.shape = shape.data();  // no strides: compact
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  std::vector<std::int64_t> shape;
  Memory memory;
  bool gpu;
  planq_tensor described{};

 private:
  // DLPack's code of a type, and the bytes of an element.
  static std::pair<std::uint8_t, std::size_t> type_of(const std::string& dtype) {
    static const std::map<std::string, std::pair<std::uint8_t, std::size_t>> kTypes = {
        {"int8", {0, 1}},    {"int32", {0, 4}},   {"uint8", {1, 1}},   {"float16", {2, 2}},
        {"float32", {2, 4}}, {"float64", {2, 8}}, {"bfloat16", {4, 2}}};
    const auto found = kTypes.find(dtype);
    if (found == kTypes.end()) throw std::runtime_error("no tensors of " + dtype + " here");
    return found->second;
  }
  std::size_t bytes_of(const std::string& dtype) const {
    std::size_t bytes = type_of(dtype).second;
    for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
    return bytes;
  }
};

class Plan {
 public:
  Plan(const planq_stream& stream, const std::string& descriptor) : stream_(stream) {
    check(planq_select(&stream, descriptor.c_str(), nullptr, &plan_));
  }
  ~Plan() { planq_plan_release(plan_); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  std::string sku() const { return text(planq_plan_sku); }

  // The outputs of a call with these extents in the place of Dims, by name.
  std::map<std::string, Tensor> outputs(const std::map<std::string, std::int64_t>& extents) const {
    std::map<std::string, Tensor> made;
    const Json operands = JsonReader::read(text(planq_plan_operands));
    for (const Json& operand : operands.as<Json::List>()) {
      if (operand.at("role").as<std::string>() != "output") continue;
      std::vector<std::int64_t> shape;
      for (const Json& extent : operand.at("shape").as<Json::List>())
        shape.push_back(std::holds_alternative<std::int64_t>(extent.value)
                            ? extent.as<std::int64_t>()
                            : extents.at(extent.at("dim").as<std::string>()));
      made.try_emplace(operand.at("name").as<std::string>(),
                       operand.at("storage").as<std::string>(), std::move(shape),
                       stream_.backend == PLANQ_CUDA);
    }
    return made;
  }

  void run(Tensor& input, std::map<std::string, Tensor>& outputs) {
    std::deque<planq_tensor*> tensors;  // whose members stay where they are
    std::vector<planq_operand> operands;
    const auto add = [&](const char* name, Tensor& tensor) {
      planq_operand operand{};
      operand.name = name;
      operand.tensors = &tensors.emplace_back(&tensor.described);
      operand.count = 1;
      operands.push_back(operand);
    };
    add("input", input);
    for (auto& [name, tensor] : outputs) add(name.c_str(), tensor);
    std::size_t bytes = 0;
    check(planq_plan_workspace_size(plan_, nullptr, 0, &bytes));
    const Memory workspace(bytes, stream_.backend == PLANQ_CUDA);
    check(planq_run(plan_, &stream_, bytes == 0 ? nullptr : workspace.data(), bytes,
                    operands.data(), operands.size()));
#if defined(ENGINE_CUDA)
    // An engine keeps its workspace; this one frees it here, so it waits.
    if (stream_.backend == PLANQ_CUDA) check(cudaDeviceSynchronize());
#endif
  }

 private:
  template <class Function>
  std::string text(Function function) const {
    std::size_t size = 0;
    check(function(plan_, nullptr, 0, &size));
    std::string buffer(size, '\0');
    check(function(plan_, buffer.data(), buffer.size(), nullptr));
    buffer.resize(size - 1);
    return buffer;
  }

  planq_stream stream_;
  planq_plan plan_ = 0;
};

}  // namespace engine
