// Keeps the first exception that Python code of a training run raised, to raise it again when the run has ended. Its functions must be
// called under the GIL, except for guard(), which takes it.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "python/module/interpreter.h"

namespace spillway::python {

class Raised {
 public:
  /// Runs call() under the GIL. If it raises an exception, keeps it and throws Error(usage), unless it is KeyboardInterrupt. Does nothing
  /// if an exception is kept already.
  template <class Call>
  void guard(const char* where, const Call& call) {
    const Locked locked;
    if (first_) return;
    try {
      call_python(call);
    } catch (nb::python_error& e) {
      const bool stops = e.matches(PyExc_KeyboardInterrupt);  // the run saves and stops, as with Ctrl-C outside of a callback
      first_.emplace(std::move(e));
      if (!stops) throw Error(ErrorCode::usage, std::string("[callback] ") + where + " raised an exception");
    }
  }
  /// Runs call(), which computes something that the run needs, such as a block's forward. If it raises an exception, or if other code of
  /// the run raised one before, throws an Error that begins with `where`, which ends the run.
  template <class Call>
  void run(const std::string& where, const Call& call) {
    if (first_ && !interrupted())
      throw Error(ErrorCode::usage, where + " was not run, because other Python code of the run raised an exception");
    try {
      call_python(call);
    } catch (nb::python_error& e) {
      const std::string what = where + " raised " + text_of(e);
      if (!first_ || interrupted()) first_.emplace(std::move(e));
      throw Error(ErrorCode::usage, what);
    }
  }
  bool any() const { return first_.has_value(); }
  void keep(nb::python_error error) {
    if (!first_) first_.emplace(std::move(error));
  }
  void rethrow() {
    if (!first_) return;
    nb::python_error error = std::move(*first_);
    first_.reset();
    throw error;
  }

 private:
  // Returns the exception as text, without the traceback, which the exception itself shows.
  static std::string text_of(const nb::python_error& e) {
    const nb::object name = nb::steal(PyObject_GetAttrString(e.type().ptr(), "__name__")), text = nb::steal(PyObject_Str(e.value().ptr()));
    std::string all;
    for (const nb::object& one : {name, text}) {
      const char* const words = one.is_valid() ? PyUnicode_AsUTF8AndSize(one.ptr(), nullptr) : nullptr;
      if (words == nullptr) PyErr_Clear();
      all += (all.empty() ? "" : ": ") + std::string(words != nullptr ? words : "an exception");
    }
    return all;
  }
  // Returns whether the kept exception asks the run to save and stop. Until then the run still needs its blocks and data.
  bool interrupted() const { return first_ && first_->matches(PyExc_KeyboardInterrupt); }

  std::optional<nb::python_error> first_;
};

}  // namespace spillway::python
