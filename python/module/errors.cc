#include "python/module/errors.h"

#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>

#include "base/path_error.h"
#include "base/printable.h"
#include "python/module/interpreter.h"
#include "trainer/settings/value.h"

namespace spillway::python {
namespace {

namespace nb = nanobind;

// The exception classes by exit status. The pointers are strong references for the life of the process.
PyObject* error_kinds[16] = {};
PyObject *type_kind = nullptr, *index_kind = nullptr;

void put(PyObject*& place, const nb::handle& kind) {
  Py_XDECREF(place);
  place = kind.inc_ref().ptr();
}

void set_errors(const nb::dict& by_status, const nb::object& of_types, const nb::object& of_indices) {
  for (const auto& [status, kind] : by_status) {
    const auto at = nb::cast<size_t>(status);
    if (at >= std::size(error_kinds)) throw nb::value_error("expected exit statuses below 16");
    put(error_kinds[at], kind);
  }
  put(type_kind, of_types);
  put(index_kind, of_indices);
}

void raise(PyObject* kind, const std::string& words) {
  // A message may contain a path whose bytes are not UTF-8; such bytes are replaced.
  PyObject* text = PyUnicode_DecodeUTF8(words.data(), static_cast<Py_ssize_t>(words.size()), "replace");
  PyErr_SetObject(kind != nullptr ? kind : PyExc_RuntimeError, text);
  Py_XDECREF(text);
}

void raise(ErrorCode code, const std::string& words) { raise(error_kinds[static_cast<size_t>(code) % std::size(error_kinds)], words); }

void translate(const std::exception_ptr& exception, void*) {
  // No exception that C++ knows: Python is ending this thread, because the interpreter ends.
  if (!exception) stop_for_ever();
  try {
    std::rethrow_exception(exception);
  } catch (const WrongType& e) {
    raise(type_kind, e.what());
  } catch (const trainer::WrongKind& e) {
    raise(type_kind, for_terminal(e.what()));
  } catch (const WrongIndex& e) {
    raise(index_kind, e.what());
  } catch (const Error& e) {
    raise(e.code(), for_terminal(e.what()));  // control characters are escaped, since Python prints the text as it is
  } catch (const std::filesystem::filesystem_error& e) {
    const Error told = error_of(e);
    raise(told.code(), for_terminal(told.what()));
  } catch (const std::bad_alloc&) {
    raise(ErrorCode::refused, "[memory] the system has no memory left for this call");
  } catch (const std::length_error& e) {
    raise(ErrorCode::refused, std::string("[memory] expected a size that memory can hold, got a larger one: ") + e.what());
  } catch (const std::system_error& e) {  // catches the remaining failures of the operating system
    raise(ErrorCode::io, std::string("[system] ") + e.what());
  } catch (const nb::cast_error&) {
    raise(type_kind, "expected an argument of another type");
  }
}

}  // namespace

void bind_errors(nb::module_& module) {
  nb::register_exception_translator(translate);
  module.def("_set_errors", set_errors, nb::arg("by_status"), nb::arg("of_types"), nb::arg("of_indices"));
}

}  // namespace spillway::python
