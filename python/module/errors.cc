#include "python/module/errors.h"

#include <exception>
#include <string>

#include "base/error.h"

namespace spillway::python {
namespace {

namespace nb = nanobind;

// Strong references for the life of the process, by exit status.
PyObject* error_kinds[16] = {};

void set_errors(const nb::dict& by_status) {
  for (const auto& [status, kind] : by_status) {
    const auto at = nb::cast<size_t>(status);
    if (at >= std::size(error_kinds)) throw nb::value_error("expected exit statuses below 16");
    Py_XDECREF(error_kinds[at]);
    error_kinds[at] = kind.inc_ref().ptr();
  }
}

void translate(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& e) {
    PyObject* kind = error_kinds[static_cast<size_t>(e.exit_status()) % std::size(error_kinds)];
    // Paths may be any bytes.
    PyObject* text = PyUnicode_DecodeUTF8(e.what(), static_cast<Py_ssize_t>(std::string_view(e.what()).size()), "replace");
    PyErr_SetObject(kind != nullptr ? kind : PyExc_RuntimeError, text);
    Py_XDECREF(text);
  }
}

}  // namespace

void bind_errors(nb::module_& module) {
  nb::register_exception_translator(translate);
  module.def("_set_errors", set_errors, nb::arg("by_status"));
}

}  // namespace spillway::python
