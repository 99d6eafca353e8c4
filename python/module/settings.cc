#include "python/module/settings.h"

#include "python/module/arguments.h"
#include "python/module/errors.h"
#include "trainer/deepspeed/deepspeed.h"
#include "trainer/train/train.h"

namespace spillway::python {
namespace {

constexpr int kDeepest = 3;  // the deepest nesting: a dict in a list in an argument; the limit stops a list that contains itself

// Returns the bytes of a str, bytes or os.PathLike in the file system's encoding, or nothing for other objects.
std::optional<std::string> text_of(const std::string& name, const nb::handle& given) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(given.ptr(), &bytes) != 0) {
    const nb::object owner = nb::steal(bytes);
    return std::string(PyBytes_AsString(bytes), static_cast<size_t>(PyBytes_Size(bytes)));
  }
  nb::python_error error;
  if (error.matches(PyExc_TypeError)) return {};
  if (error.matches(PyExc_UnicodeEncodeError))
    throw WrongValue(name + ": expected text that can be encoded, got text with a lone surrogate (half of a character)");
  if (error.matches(PyExc_ValueError)) throw WrongValue(name + ": expected text without null characters, got text with some");
  throw error;
}

// Returns the number that an int or an object with __index__ stands for, or nothing for other objects. A number that does not fit 64 bits
// is returned as its digits, so that the error message of the option can show them.
std::optional<trainer::Value> whole_of(const std::string& name, const nb::handle& given) {
  const nb::object whole = nb::steal(PyIndex_Check(given.ptr()) ? PyNumber_Index(given.ptr()) : nullptr);
  if (!whole.is_valid()) return PyErr_Clear(), std::nullopt;
  int beyond = 0;
  const i64 value = PyLong_AsLongLongAndOverflow(whole.ptr(), &beyond);
  if (beyond == 0) return value;
  const nb::object digits = nb::steal(PyObject_Str(whole.ptr()));
  if (!digits.is_valid()) {  // Python does not convert a number with too many digits to text
    PyErr_Clear();
    throw WrongValue(name + ": expected a whole number that fits 64 bits, got a larger one");
  }
  return words_of(digits);
}

trainer::Value value_of(const std::string& name, const nb::handle& given, int depth = 1) {
  if (PyBool_Check(given.ptr())) return trainer::Value(given.is(nb::handle(Py_True)));
  if (PyFloat_Check(given.ptr())) return trainer::Value(PyFloat_AsDouble(given.ptr()));
  if (const auto whole = whole_of(name, given)) return *whole;
  if (depth < kDeepest && (PyList_Check(given.ptr()) || PyTuple_Check(given.ptr()))) {
    trainer::Value::Sequence values;
    for (const nb::handle one : given) values.push_back(value_of(name, one, depth + 1));
    return values;
  }
  if (depth < kDeepest && PyDict_Check(given.ptr())) {
    trainer::Value::Mapping values;
    for (const auto& [key, one] : nb::borrow<nb::dict>(given)) values.emplace_back(words_of(key), value_of(name, one, depth + 1));
    return values;
  }
  if (const auto text = text_of(name, given)) return *text;
  if (PyNumber_Check(given.ptr()) != 0) {
    if (const Real number = Real::read(given); number.is_number()) return trainer::Value(static_cast<double>(number));
  }
  throw WrongType(name + ": expected text, a path, a number, True, False, or a list or dict of them, got " + kind_of(given));
}

std::string without_underscores_around(const std::string& name) {
  const size_t first = name.find_first_not_of('_'), last = name.find_last_not_of('_');
  return first == name.npos ? name : name.substr(first, last + 1 - first);
}

}  // namespace

trainer::NamedValues values_of(const nb::dict& arguments) {
  trainer::NamedValues values;
  for (const auto& [key, given] : arguments) {
    const std::string name = without_underscores_around(words_of(key));
    if (!given.is_none()) values.emplace_back(name, value_of(name, given));
  }
  return values;
}

trainer::TrainConfig train_settings(const nb::dict& arguments) {
  return trainer::train_settings(trainer::given_values(trainer::Command::train, values_of(arguments)));
}

trainer::TrainConfig partial_settings(const nb::dict& arguments) {
  return trainer::partial_settings(trainer::given_values(trainer::Command::train, values_of(arguments)));
}

trainer::Settings command_settings(trainer::Command command, const nb::dict& arguments) {
  std::vector<std::string> notes;
  trainer::Settings settings =
      trainer::make_settings(command, trainer::with_files(command, trainer::given_values(command, values_of(arguments)), notes));
  trainer::check_settings(settings, trainer::Host{});
  return settings;
}

}  // namespace spillway::python
