#include "core/messages.h"

namespace planq {

std::string workspace_text(std::size_t needed, std::size_t got, std::string_view problem) {
  return "workspace: expected at least " + std::to_string(needed) + " bytes aligned to " +
         std::to_string(kWorkspaceAlignment) + ", got " + std::to_string(got) + " bytes; " +
         std::string(problem);
}

ArgumentFailure ruled_out(const Plan& plan, int index, std::string actual) {
  return {operand_name(plan, index), "None", std::move(actual),
          "the descriptor's mode has no such operand"};
}

std::string threads_text(std::string_view given) {
  return "expected 1 to 1024 threads, got " + std::string(given);
}

std::string stream_text(const Plan& plan, const Stream& stream) {
  Device actual;
  actual.backend = stream.backend;
  actual.index = stream.device;
  return "the plan was selected for " + device_text(plan.device) + ", the stream is on " +
         device_text(actual);
}

std::string foreseen_text(const Plan& plan) {
  return "the plan was foreseen for " + plan.device.name +
         " and runs nowhere: select it on a stream of the device";
}

Fault check_extent(const DimInfo& dim, std::int64_t extent) {
  if (extent >= 0 && extent <= dim.max) return {};
  return {dim.name.data(),
          "expected 0 to " + std::to_string(dim.max) + ", got " + std::to_string(extent)};
}

bool named_device(const std::string& name, Device& device) {
  if (name == "host") {
    device = host_device();
    return true;
  }
  if (modelled_device(name, device)) return true;
  for (int index = 0; index < cuda_device_count(); ++index)
    if (name == "cuda:" + std::to_string(index)) return cuda_device(index, device).ok();
  return false;
}

Status device_of(const Stream& stream, Device& device) {
  device = host_device();
  return stream.backend == Backend::Host ? Status::success() : cuda_device(stream.device, device);
}

}  // namespace planq
