#include "python/module/arguments.h"

#include <limits>
#include <utility>

#include "python/module/errors.h"

namespace spillway::python {
namespace {

constexpr Py_ssize_t kMostWholes = 64;  // more numbers than any shape has; the limit stops a range() of any length from being read

// Returns the object as an int, or null and sets `problem`. Bools are refused, although they count as ints in Python.
nb::object index_of(const nb::handle& given, Problem& problem) noexcept {
  problem = of_type("a whole number", given);
  if (PyBool_Check(given.ptr()) || !PyIndex_Check(given.ptr())) return {};
  nb::object whole = nb::steal(PyNumber_Index(given.ptr()));
  if (!whole.is_valid()) return PyErr_Clear(), nb::object();
  problem = {};
  return whole;
}

double float_of(const nb::handle& given, Problem& problem) noexcept {
  const double value = PyFloat_AsDouble(given.ptr());
  if (value == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    problem = of_type("a number", given);
  }
  return value;
}

// Returns true if `value` equals the int exactly; Python's comparison of int and float does not round.
bool is_exactly(const nb::object& whole, double value) noexcept {
  const nb::object back = nb::steal(PyFloat_FromDouble(value));
  const int equal = back.is_valid() ? PyObject_RichCompareBool(whole.ptr(), back.ptr(), Py_EQ) : -1;
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

}  // namespace

Problem of_type(const char* wanted, const nb::handle& given) {
  return {std::string("expected ") + wanted + ", got " + kind_of(given), true};
}

void Problem::check() const {
  if (text.empty()) return;
  if (of_type) throw WrongType(text);
  throw WrongValue(text);
}

Whole Whole::read(const nb::handle& given) noexcept {
  Whole read;
  const nb::object whole = index_of(given, read.problem_);
  if (!whole.is_valid()) return read;
  int beyond = 0;
  read.value_ = PyLong_AsLongLongAndOverflow(whole.ptr(), &beyond);
  if (beyond != 0) read.problem_ = {"expected a whole number that fits 64 bits, got a larger one", false};
  return read;
}

int Whole::small() const {
  const i64 value = *this;
  if (!std::in_range<int>(value)) throw WrongValue("expected a whole number that fits 32 bits, got " + std::to_string(value));
  return static_cast<int>(value);
}

Seed Seed::read(const nb::handle& given) noexcept {
  Seed read;
  const nb::object whole = index_of(given, read.problem_);
  if (!whole.is_valid()) return read;
  read.value_ = PyLong_AsUnsignedLongLong(whole.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    read.problem_ = {"expected a whole number from 0 to 2^64 - 1, got one outside of this range", false};
  }
  return read;
}

Real Real::read(const nb::handle& given) noexcept {
  Real read;
  Problem no_whole;
  const bool is_float = PyFloat_Check(given.ptr()) || PyBool_Check(given.ptr());
  const nb::object whole = is_float ? nb::object() : index_of(given, no_whole);
  if (!whole.is_valid()) {
    read.value_ = float_of(given, read.problem_);
    return read;
  }
  read.value_ = PyLong_AsDouble(whole.ptr());
  const bool beyond = PyErr_Occurred() != nullptr;
  if (beyond) PyErr_Clear();
  if (beyond || !is_exactly(whole, read.value_))
    read.problem_ = {
        "expected a whole number that a double can hold exactly (such as all up to 2^53), got another one: pass a float to round it",
        false};
  return read;
}

Wholes Wholes::read(const nb::handle& given) noexcept {
  Wholes read;
  if (PyIndex_Check(given.ptr()) && !PySequence_Check(given.ptr())) {
    read.all_.push_back(Whole::read(given));
    return read;
  }
  read.problem_ = of_type("whole numbers", given);
  if (!PySequence_Check(given.ptr()) || PyUnicode_Check(given.ptr()) || PyBytes_Check(given.ptr())) return read;
  const Py_ssize_t size = PySequence_Size(given.ptr());
  if (size < 0) return PyErr_Clear(), read;
  if (size > kMostWholes) return read.problem_ = {"expected at most 6 axes, got " + std::to_string(size), false}, read;
  for (Py_ssize_t i = 0; i < size; ++i) {
    const nb::object one = nb::steal(PySequence_GetItem(given.ptr(), i));
    if (!one.is_valid()) return PyErr_Clear(), read;
    read.all_.push_back(Whole::read(one));
  }
  read.problem_ = {};
  return read;
}

std::vector<i64> Wholes::all() const {
  problem_.check();
  return {all_.begin(), all_.end()};
}

std::vector<int> Wholes::small() const {
  problem_.check();
  std::vector<int> numbers;
  for (const Whole& one : all_) numbers.push_back(one.small());
  return numbers;
}

Word Word::read(const nb::handle& given) noexcept {
  Word read;
  if (!PyUnicode_Check(given.ptr())) return read.problem_ = of_type("text", given), read;
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(given.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    read.problem_ = {"expected text that can be encoded, got text with a lone surrogate (half of a character)", false};
    return read;
  }
  read.text_.assign(text, static_cast<size_t>(size));
  if (read.text_.find('\0') != std::string::npos) read.problem_ = {"expected text without null characters, got text with some", false};
  return read;
}

Flag Flag::read(const nb::handle& given) noexcept {
  Flag read;
  read.value_ = given.is(nb::handle(Py_True));
  if (!PyBool_Check(given.ptr())) read.problem_ = of_type("True or False", given);
  return read;
}

std::string path_of(const nb::handle& given) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(given.ptr(), &bytes) == 0) {
    nb::python_error error;
    const std::string text = "path: expected a str, bytes or os.PathLike that names a file: " + words_of(error.value());
    if (error.matches(PyExc_TypeError)) throw WrongType(text);
    if (error.matches(PyExc_ValueError)) throw WrongValue(text);
    throw error;
  }
  const nb::object owner = nb::steal(bytes);
  return {PyBytes_AsString(bytes), static_cast<size_t>(PyBytes_Size(bytes))};
}

std::string words_of(const nb::handle& given) { return Word::read(nb::str(given)).text(); }

nb::object iterator_of(const nb::handle& given, const std::string& otherwise) {
  if (PyUnicode_Check(given.ptr()) || PyBytes_Check(given.ptr())) throw WrongType(otherwise);
  nb::object iterator = nb::steal(PyObject_GetIter(given.ptr()));
  if (iterator.is_valid()) return iterator;
  nb::python_error error;
  if (!error.matches(PyExc_TypeError)) throw error;
  throw WrongType(otherwise);
}

std::string kind_of(const nb::handle& given) {
  const nb::object name = nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(given.ptr())), "__name__"));
  const char* const text = name.is_valid() ? PyUnicode_AsUTF8AndSize(name.ptr(), nullptr) : nullptr;
  if (text != nullptr) return text;
  PyErr_Clear();
  return "an object";
}

}  // namespace spillway::python
