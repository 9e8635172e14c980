#include "bindings/python/kernels.h"

#include <pybind11/stl.h>

#include <string>

#include "core/selection_text.h"

namespace planq::python {

namespace py = pybind11;

namespace {

// The coefficients; a descriptor says how many terms there are.
py::object bound_values(const ErrorBound& bound) {
  using namespace py::literals;
  if (!bound.terms) return py::none();
  return py::dict("constant"_a = bound.constant, "per_term"_a = bound.per_term,
                  "terms"_a = py::none(), "epsilon"_a = bound.epsilon,
                  "least_factor"_a = bound.least_factor,
                  "output_rounding"_a = bound.output_rounding);
}

py::dict guarantee_values(const Guarantee& guarantee) {
  using namespace py::literals;
  const py::object ulp = guarantee.max_ulp == kUlpUnknown
                             ? py::object(py::none())
                             : py::object(py::int_(guarantee.max_ulp.value));
  return py::dict("determinism"_a = text(name_of(guarantee.determinism.value)),
                  "math"_a = text(name_of(guarantee.math.value)),
                  "accumulator"_a = text(name_of(guarantee.accumulator.value)),
                  "rounding"_a = text(name_of(guarantee.rounding.value)), "max_ulp"_a = ulp,
                  "error_bound"_a = bound_values(guarantee.error_bound),
                  "batch_invariant"_a = guarantee.batch_invariant.value,
                  "basis"_a = text(guarantee.basis.value));
}

}  // namespace

py::list body_values(const Operator& op, std::span<const Candidate> bodies) {
  py::list listed;
  for (const Candidate& body : bodies)
    listed.append(py::make_tuple(text(body.kernel->body), body.chosen, body.reason.text(),
                                 body.workspace,
                                 py::tuple(py::cast(constraint_texts(op, *body.kernel)))));
  return listed;
}

py::dict kernel_values(const Operator& op, const Kernel& kernel, const Guarantee& guarantee) {
  using namespace py::literals;
  const py::tuple constraints(py::cast(constraint_texts(op, kernel)));
  const py::object max_arch =
      kernel.arch.last >= kLastArch ? py::object(py::none()) : py::int_(kernel.arch.last);
  py::list dtypes;
  for (const DType dtype : kernel.dtypes) dtypes.append(text(name_of(dtype)));
  return py::dict("sku"_a = text(kernel.sku), "body"_a = text(kernel.body),
                  "dtypes"_a = py::tuple(dtypes), "revision"_a = kernel.revision,
                  "backend"_a = text(name_of(kernel.backend)), "min_arch"_a = kernel.arch.first,
                  "max_arch"_a = max_arch, "constraints"_a = constraints, "rank"_a = kernel.rank,
                  "guarantee"_a = guarantee_values(guarantee));
}

std::tuple<bool, std::string, std::string, std::string> decided_values(const Guarantee& guarantee) {
  return {guarantee.batch_invariant.value, text(name_of(guarantee.math.value)),
          text(name_of(guarantee.accumulator.value)), text(name_of(guarantee.rounding.value))};
}

}  // namespace planq::python
