// The extension module: descriptors, selection, devices and streams. Nothing here knows an
// operator; what differs between them comes from their tables.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "bindings/python/errors.h"
#include "bindings/python/fields.h"
#include "bindings/python/json.h"
#include "bindings/python/kernels.h"
#include "bindings/python/lend.h"
#include "bindings/python/plan.h"
#include "bindings/python/record.h"
#include "bindings/python/rules.h"
#include "bindings/python/source.h"
#include "bindings/python/stream.h"
#include "bindings/python/torch_call.h"
#include "bindings/python/vocabularies.h"
#include "core/messages.h"
#include "core/plan.h"
#include "core/registry.h"
#include "core/select.h"
#include "core/selection_text.h"
#include "core/serial.h"
#include "host/amx.h"
#include "host/functions.h"
#include "host/simd.h"

namespace py = pybind11;

namespace planq::python {
namespace {

// What sin_turn and cos_turn have for phases of uint32, into two arrays of float32 as long.
void turn_phases(const py::object& phases, const py::object& sines, const py::object& cosines) {
  const py::buffer_info from = py::buffer(phases).request();
  const py::buffer_info to[] = {py::buffer(sines).request(true), py::buffer(cosines).request(true)};
  const auto fits = [&](const py::buffer_info& array) {
    return array.itemsize == 4 && array.ndim == 1 && array.size == from.size &&
           (array.size == 0 || array.strides[0] == 4);
  };
  if (!fits(from) || !fits(to[0]) || !fits(to[1]))
    throw py::value_error("expected three contiguous arrays of 4-byte elements, equally long");
  const host::StrictFloat strict;
  host::sines_and_cosines(static_cast<const std::uint32_t*>(from.ptr), from.size,
                          static_cast<float*>(to[0].ptr), static_cast<float*>(to[1].ptr));
}

// Those that host kernels use here, from narrow to wide.
py::list instruction_sets() {
  std::size_t count = static_cast<std::size_t>(host::detect_level()) + 1;
  if (host::has_vnni()) count = 4;
  if (host::has_amx()) count = 5;
  py::list names;
  for (std::size_t i = 0; i < count; ++i) names.append(py::str(host::kInstructionSets[i].data()));
  return names;
}

// A name that there is not would make kernels slow, and nobody would know why.
void check_instruction_set() {
  const char* const asked = std::getenv("PLANQ_INSTRUCTION_SET");
  if (!asked || !*asked) return;
  std::string names;
  for (const std::string_view known : host::kInstructionSets) {
    if (known == asked) return;
    names.append(names.empty() ? "" : ", ").append(known);
  }
  throw py::import_error("PLANQ_INSTRUCTION_SET: expected one of " + names + ", got '" + asked +
                         "'");
}

// Extents; an axis that is a dim by its name.
py::tuple shape_values(const Descriptor& descriptor, const OperandSpec& spec, const Shape& shape) {
  py::tuple extents(shape.rank);
  for (int axis = 0; axis < shape.rank; ++axis) {
    const int dim = spec.dims[static_cast<std::size_t>(axis)];
    if (dim < 0)
      extents[axis] = py::int_(shape[axis]);
    else
      extents[axis] = py::str(descriptor.extras->dims[static_cast<std::size_t>(dim)].name.data());
  }
  return extents;
}

// One tuple per operand that exists: (name, role, dtype, shape, storage, optional, kind, shapes of
// the members of a list).
py::list descriptor_operands(const Descriptor& descriptor) {
  const auto declared = descriptor.op->operands;
  std::vector<OperandSpec> specs(declared.size());
  specify(descriptor, specs);
  py::list operands;
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const OperandSpec& spec = specs[i];
    if (!spec.present) continue;
    py::list shapes;
    for (std::int64_t i = 0; i < spec.shapes.count; ++i)
      shapes.append(shape_values(descriptor, spec, spec.member_shape(i)));
    operands.append(py::make_tuple(
        text(declared[i].name), text(name_of(spec.role)), text(name_of(spec.dtype)),
        shape_values(descriptor, spec, spec.shape), text(name_of(storage_of(spec.dtype))),
        spec.optional, text(name_of(spec.kind)), py::tuple(shapes)));
  }
  return operands;
}

// Throws KeyError for a name that is no operator's.
// Kernels take most of the time that it takes to describe an operator, and may be left out.
py::dict operator_values(const std::string& name, bool with_kernels) {
  using namespace py::literals;
  const Operator* op = find_operator(name);
  if (!op) throw py::key_error(name);
  py::list operands, kernels;
  for (const OperandInfo& operand : op->operands) operands.append(text(operand.name));
  if (with_kernels)
    for (const Kernel* kernel : ordered_kernels(*op))
      kernels.append(kernel_values(*op, *kernel, kernel->guarantee));
  return py::dict("fields"_a = field_table(op->fields), "operands"_a = py::tuple(operands),
                  "kernels"_a = py::tuple(kernels), "operand_table"_a = operand_table(*op));
}

// The names of every enumeration, by its type: of the core's, and of what fields of operators are.
py::dict vocabulary_values() {
  py::dict result;
  const auto add = [&](const Vocabulary& vocabulary) {
    py::list names;
    for (const std::string_view name : vocabulary.names)
      if (!name.empty()) names.append(text(name));
    result[py::str(text(vocabulary.type))] = py::tuple(names);
  };
  add(kVocabulary<DType>);
#define PLANQ_ADD(Type, LIST) add(kVocabulary<Type>);
  PLANQ_VOCABULARIES(PLANQ_ADD)
#undef PLANQ_ADD
  for (const Operator* op : operators())
    for (const Field& field : op->fields)
      if (!field.vocabulary.names.empty()) add(field.vocabulary);
  return result;
}

// One tuple per element type, in the order of FormatInfo's members.
py::list format_values() {
  py::list listed;
  for (const FormatInfo& format : kFormats) {
    if (format.name.empty()) continue;
    listed.append(py::make_tuple(text(format.name), text(format.short_name), format.bits,
                                 format.per_byte, format.exponent_bits, format.mantissa_bits,
                                 format.bias, format.lowest(), format.largest,
                                 format.has_infinities, format.has_nan));
  }
  return listed;
}

// One tuple per kernel in order of preference, which is that of operator_values: what the
// descriptor decides of its guarantee, terms of the error bound, chosen, kind, reason, workspace.
py::list selection_values(const Descriptor& descriptor, const Preference& preference,
                          const Device& device) {
  py::list listed;
  for (const Candidate& candidate : select(descriptor, preference, device).candidates) {
    const Kernel& kernel = *candidate.kernel;
    listed.append(py::make_tuple(decided_values(guarantee_of(kernel, descriptor)),
                                 terms_of(kernel, descriptor), candidate.chosen,
                                 text(name_of(candidate.reason.kind)), candidate.reason.text(),
                                 candidate.workspace));
  }
  return listed;
}

// The plan that a device gets, present or not, as it would be stored; None: none.
py::object foreseen_values(const Descriptor& descriptor, const Preference& preference,
                           const Device& device) {
  Plan plan;
  plan.descriptor = descriptor;
  plan.preference = preference;
  plan.device = device;
  return foresee_plan(plan) ? json_value(plan_json(plan)) : py::none();
}

// Of one tuple per kernel, with the members of SelectionLine.
using LineValues = std::tuple<std::string, std::string, std::int64_t, std::uint64_t, std::string,
                              std::string, std::vector<std::string>>;
std::vector<SelectionLine> lines_of(const std::vector<LineValues>& values) {
  std::vector<SelectionLine> lines;
  for (const LineValues& each : values) lines.push_back(std::make_from_tuple<SelectionLine>(each));
  return lines;
}
std::string selection_table(const std::vector<LineValues>& values) {
  return selection_text(lines_of(values));
}
std::string no_kernel(const std::string& op, const Preference& preference,
                      const std::vector<LineValues>& values) {
  return no_kernel_sentence(op, preference, lines_of(values));
}

py::list device_list() {
  py::list devices;
  for (int index = 0; index < cuda_device_count(); ++index) {
    Device device;
    if (cuda_device(index, device).ok()) devices.append(device);
  }
  return devices;
}

std::optional<Device> device_called(const std::string& name) {
  Device device;
  if (named_device(name, device)) return device;
  return std::nullopt;
}

void define_streams(py::module_& module) {
  py::class_<HostStream> host(module, "HostStream", py::is_final());
  host.def(py::init([](std::int64_t threads) {
             if (!are_threads(threads)) {
               raise_stream_error(threads_text(std::to_string(threads)));
               throw py::error_already_set();
             }
             return HostStream{static_cast<std::int32_t>(threads)};
           }),
           py::arg("threads"))
      .def_readonly("threads", &HostStream::threads)
      .def("__repr__", [](const HostStream& stream) {
        return "planq.host_stream(threads=" + std::to_string(stream.threads) + ")";
      });
  py::class_<CudaStream> cuda(module, "CudaStream", py::is_final());
  cuda.def(py::init<std::uintptr_t, std::int32_t>(), py::arg("handle"), py::arg("device"))
      .def_readonly("handle", &CudaStream::handle)
      .def_readonly("device", &CudaStream::device)
      .def("__repr__", [](const CudaStream& stream) {
        return "planq.cuda_stream(" + std::to_string(stream.handle) +
               ", device=" + std::to_string(stream.device) + ")";
      });
  set_stream_types(reinterpret_cast<PyTypeObject*>(host.ptr()),
                   reinterpret_cast<PyTypeObject*>(cuda.ptr()));
  module.def("stream_device", [](py::handle object) {
    Stream stream;
    if (!read_stream(object.ptr(), stream)) throw py::error_already_set();
    Device device;
    if (const Status status = device_of(stream, device); !status.ok()) {
      raise_cuda_error(status.cuda_error, kReadingDevice);
      throw py::error_already_set();
    }
    return device;
  });
}

void define_devices(py::module_& module) {
  py::class_<Device>(module, "Device")
      .def(py::init([](const std::string& backend, int index, int arch, int multiprocessors,
                       std::size_t shared_memory_per_block, std::size_t l2_bytes,
                       const std::string& name) {
        return Device{enumerator<Backend>("backend", py::str(backend)),
                      index,
                      arch,
                      multiprocessors,
                      shared_memory_per_block,
                      l2_bytes,
                      name};
      }))
      .def_property_readonly("backend",
                             [](const Device& device) { return text(name_of(device.backend)); })
      .def_readonly("index", &Device::index)
      .def_readonly("arch", &Device::arch)
      .def_readonly("multiprocessors", &Device::multiprocessors)
      .def_readonly("shared_memory_per_block", &Device::shared_memory_per_block)
      .def_readonly("l2_bytes", &Device::l2_bytes)
      .def_readonly("name", &Device::name);
  module.def("devices", device_list);
  module.def("named_device", device_called);
  module.attr("NAMES_OF_DEVICES") = kNamesOfDevices;
}

}  // namespace
}  // namespace planq::python

PYBIND11_MODULE(_core, module) {
  using namespace planq;
  using namespace planq::python;
  check_instruction_set();
  module.attr("WORKSPACE_ALIGNMENT") = kWorkspaceAlignment;
  py::class_<Descriptor>(module, "Descriptor")
      .def("values", &field_values)
      .def("operands", &descriptor_operands)
      .def("to_json",
           [](const Descriptor& descriptor) { return dump(descriptor_json(descriptor)); });
  py::class_<Preference>(module, "Preference").def("to_dict", [](const Preference& preference) {
    return py::dict(json_value(preference_json(preference)));
  });
  py::register_exception<NoKernel>(module, "NoKernel");
  define_devices(module);
  define_streams(module);
  define_plan(module);
  define_torch_call(module);
  define_recording(module);
  define_lending(module);
  define_json(module);
  module.def("resolve_descriptor", resolve_descriptor);
  module.def("resolve_preference", resolve_preference);
  module.def("check_descriptor", check_descriptor_values);
  module.def("check_preference", check_preference_values);
  module.def("check_field_names", check_field_names);
  module.def("refuse_operator", refuse_operator);
  module.def("read_scope", read_scope);
  module.def("read_dim", read_dim);
  module.def("read_maximum", read_maximum);
  module.def("read_member", [](py::handle type, py::handle value, const std::string& field) {
    const Members& members = Members::of(type);
    return members[members.read(field, value)];
  });
  module.def("preference_fields", [] { return py::list(field_table(preference_fields())); });
  module.def("vocabularies", vocabulary_values);
  module.def("formats", format_values);
  module.def("operator", operator_values, py::arg("name"), py::arg("with_kernels") = true);
  module.def("select", selection_values);
  module.def("workspace_text", workspace_text);
  module.def("threads_text", threads_text);
  module.def("foresee", foreseen_values);
  module.def("verdict_text", verdict_text);
  module.def("selection_text", selection_table);
  module.def("no_kernel_sentence", no_kernel);
  module.def("build_info", [] {
    const BuildInfo& info = build_info();
    py::dict values;
    values["version"] = text(info.version);
    values["build_id"] = text(info.build_id);
    values["source_id"] = text(info.source_id);
    values["compiler"] = text(info.compiler);
    values["flags"] = text(info.flags);
    values["cuda_version"] = text(info.cuda_version);
    values["architectures"] = text(info.architectures);
    values["cuda_flags"] = text(info.cuda_flags);
    return values;
  });
  module.def("instruction_sets", instruction_sets);
  module.def("sines_and_cosines", turn_phases);
  module.def("hardware_threads", [] { return std::max(1u, std::thread::hardware_concurrency()); });
}
