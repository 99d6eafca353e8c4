#include "trainer/settings/value.h"

#include <cmath>

#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

std::string list_of(const Value::Sequence& values) {
  std::string text;
  for (const Value& one : values) text += (text.empty() ? "" : ", ") + shown(one);
  return "[" + text + "]";
}

std::string list_of(const Value::Mapping& values) {
  std::string text;
  for (const auto& [name, one] : values) text += (text.empty() ? "" : ", ") + name + "=" + shown(one);
  return "{" + text + "}";
}

// Returns a size or a time as a whole number, in bytes or seconds. `parse` reads the value if it is a text.
i64 read_amount(const Value& value, const std::string& what, i64 (*parse)(const std::string&, const std::string&), const char* wanted) {
  if (const auto* text = value.as<std::string>()) return parse(*text, what);
  const auto* whole = value.as<i64>();
  if (whole == nullptr) reject_kind(value, wanted, what);
  if (*whole < 0) refuse("[" + what + "] expected " + wanted + ", got " + shown(value));
  return *whole;
}

}  // namespace

std::string shown(const Value& value) {
  if (const auto* text = value.as<std::string>()) return "\"" + *text + "\"";
  if (const auto* flag = value.as<bool>()) return *flag ? "true" : "false";
  if (const auto* whole = value.as<i64>()) return std::to_string(*whole);
  if (const auto* number = value.as<double>()) return print_number(*number);
  if (const auto* values = value.as<Value::Sequence>()) return list_of(*values);
  return list_of(*value.as<Value::Mapping>());
}

void reject_kind(const Value& value, const std::string& wanted, const std::string& what) {
  throw WrongKind("[" + what + "] expected " + wanted + ", got " + shown(value));
}

const std::string& read_text(const Value& value, const std::string& what) {
  const auto* text = value.as<std::string>();
  if (text == nullptr) reject_kind(value, "text", what);
  return *text;
}

i64 read_integer(const Value& value, const std::string& what) {
  if (const auto* text = value.as<std::string>()) return parse_integer(*text, what);
  const auto* whole = value.as<i64>();
  if (whole == nullptr) reject_kind(value, "a whole number", what);
  return *whole;
}

double read_number(const Value& value, const std::string& what) {
  if (const auto* text = value.as<std::string>()) return parse_number(*text, what);
  if (const auto* whole = value.as<i64>()) return static_cast<double>(*whole);
  const auto* number = value.as<double>();
  constexpr const char* kWanted = "a number such as 3e-4 or 0.1";
  if (number == nullptr) reject_kind(value, kWanted, what);
  if (!std::isfinite(*number)) refuse("[" + what + "] expected " + kWanted + ", got " + shown(value));
  return *number;
}

bool read_flag(const Value& value, const std::string& what) {
  if (const auto* text = value.as<std::string>()) return parse_flag(*text, what);
  const auto* flag = value.as<bool>();
  if (flag == nullptr) reject_kind(value, "true or false", what);
  return *flag;
}

i64 read_size(const Value& value, const std::string& what) {
  return read_amount(value, what, parse_size, "a size with its unit such as 640MiB, or a whole number of bytes");
}

i64 read_duration(const Value& value, const std::string& what) {
  return read_amount(value, what, parse_duration, "a time with its unit such as 30m, or a whole number of seconds");
}

}  // namespace spillway::trainer
