// The value of an option as a user gives it: a text (from the command line or a file), or a typed value (from a program). The read_*()
// functions turn either into what a field stores. A text is parsed as on the command line. Each throws Error(usage) "[what] expected …, got
// …" for a wrong value, and WrongKind if the value has a type that the option does not take. Pure functions, thus thread-safe.
#pragma once
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/types.h"

namespace spillway::trainer {

/// The value of an option has a type that the option does not take. A usage error.
class WrongKind final : public Error {
 public:
  explicit WrongKind(const std::string& message) : Error(ErrorCode::usage, message) {}
};

class Value {
 public:
  using Sequence = std::vector<Value>;
  using Mapping = std::vector<std::pair<std::string, Value>>;  // pairs of a key and a value, in the order in which they were given

  Value(std::string text) : held_(std::move(text)) {}    // NOLINT: a text is a value
  Value(const char* text) : held_(std::string(text)) {}  // NOLINT
  Value(bool value) : held_(value) {}                    // NOLINT
  Value(i64 value) : held_(value) {}                     // NOLINT
  Value(double value) : held_(value) {}                  // NOLINT
  Value(Sequence values) : held_(std::move(values)) {}   // NOLINT
  Value(Mapping values) : held_(std::move(values)) {}    // NOLINT

  /// Returns the value if it has the type T, else null.
  template <class T>
  const T* as() const {
    return std::get_if<T>(&held_);
  }
  bool operator==(const Value&) const = default;

 private:
  std::variant<std::string, bool, i64, double, Sequence, Mapping> held_;
};

/// Returns the value as an error message shows it: a text in quotes, a number as it is written, a sequence in brackets.
std::string shown(const Value& value);
/// Throws WrongKind "[what] expected `wanted`, got …".
[[noreturn]] void reject_kind(const Value& value, const std::string& wanted, const std::string& what);

const std::string& read_text(const Value& value, const std::string& what);
i64 read_integer(const Value& value, const std::string& what);
double read_number(const Value& value, const std::string& what);  // takes whole numbers and fractions; refuses infinity and NaN
bool read_flag(const Value& value, const std::string& what);
i64 read_size(const Value& value, const std::string& what);      // returns bytes; takes a text with a unit, or a whole number of bytes
i64 read_duration(const Value& value, const std::string& what);  // returns seconds; takes a text with a unit, or a whole number of seconds

}  // namespace spillway::trainer
