#include "bindings/python/lend.h"

#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "bindings/dlpack.h"
#include "bindings/python/errors.h"
#include "bindings/python/stream.h"
#include "bindings/python/vocabularies.h"

namespace py = pybind11;

namespace planq::python {
namespace {

template <class Managed>
constexpr const char* kCapsule = "dltensor";
template <>
constexpr const char* kCapsule<dlpack::ManagedVersioned> = "dltensor_versioned";

// What a capsule points at: the tensor, its extents, and who holds the memory.
template <class Managed>
struct Lent {
  Managed managed{};
  std::array<std::int64_t, kMaxRank> shape{}, strides{};
  py::object owner;

  // Consumers call this on any thread, and a few so late that there is no interpreter any more.
  static void release(Managed* managed) {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire held;
    delete static_cast<Lent*>(managed->context);
  }
  // Of a capsule that nobody has consumed.
  static void release_capsule(PyObject* capsule) {
    if (!PyCapsule_IsValid(capsule, kCapsule<Managed>)) return;
    release(static_cast<Managed*>(PyCapsule_GetPointer(capsule, kCapsule<Managed>)));
  }
};

struct Loan {
  py::object owner;
  std::uintptr_t data;
  const std::vector<std::int64_t>& shape;
  DType dtype;
  dlpack::Device device;
};

template <class Managed>
py::capsule lend_as(const Loan& loan) {
  auto lent = std::make_unique<Lent<Managed>>();
  const FormatInfo& format = format_of(loan.dtype);
  const int rank = static_cast<int>(loan.shape.size());
  std::int64_t stride = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    const auto at = static_cast<std::size_t>(axis);
    lent->shape[at] = loan.shape[at];
    lent->strides[at] = stride;
    stride *= loan.shape[at];
  }
  lent->owner = loan.owner;
  lent->managed.context = lent.get();
  lent->managed.deleter = Lent<Managed>::release;
  lent->managed.tensor = {
      reinterpret_cast<void*>(loan.data),
      loan.device,
      rank,
      {static_cast<std::uint8_t>(format.kind), static_cast<std::uint8_t>(format.bits), 1},
      lent->shape.data(),
      lent->strides.data(),
      0};
  if constexpr (std::is_same_v<Managed, dlpack::ManagedVersioned>) lent->managed.version = {1, 0};
  py::capsule capsule(&lent->managed, kCapsule<Managed>, Lent<Managed>::release_capsule);
  lent.release();
  return capsule;
}

// C-contiguous memory of an owner; `cuda`: the device that it is on, else the host.
py::object lend(const py::object& owner, std::uintptr_t data,
                const std::vector<std::int64_t>& shape, const py::object& dtype,
                std::optional<std::int32_t> cuda, bool versioned) {
  const DType type = enumerator<DType>("dtype", dtype);
  if (shape.size() > static_cast<std::size_t>(kMaxRank)) throw py::value_error("more than 8 axes");
  const dlpack::Device device =
      cuda ? dlpack::Device{dlpack::kCuda, *cuda} : dlpack::Device{dlpack::kCpu, 0};
  const Loan loan = {owner, data, shape, type, device};
  return versioned ? lend_as<dlpack::ManagedVersioned>(loan) : lend_as<dlpack::Managed>(loan);
}

// A stream of any library as planq's own; None: a host stream.
std::optional<CudaStream> cuda_stream_of(py::handle object) {
  Stream stream;
  if (!read_stream(object.ptr(), stream)) throw py::error_already_set();
  if (stream.backend == Backend::Host) return std::nullopt;
  return CudaStream{reinterpret_cast<std::uintptr_t>(stream.handle), stream.device};
}

}  // namespace

void define_lending(py::module_& module) {
  module.def("lend", lend);
  module.def("cuda_stream_of", cuda_stream_of);
}

}  // namespace planq::python
