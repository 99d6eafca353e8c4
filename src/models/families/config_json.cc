#include "models/families/config_json.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/line_column.h"

namespace spillway::models {

using nlohmann::json;

json parse_object(std::string_view text, const std::string& file, const char* what) {
  JsonFault fault;
  json root = parse_json(text, &fault);
  if (root.is_discarded()) throw Error(ErrorCode::data, fmt::format("[{}] {}: {}", what, file, fault.in_words(text)));
  if (!root.is_object()) throw Error(ErrorCode::data, fmt::format("[{}] {}: expected a JSON object, got {}", what, file, root.type_name()));
  return root;
}

const json* ConfigObject::find(const char* key) const {
  const auto entry = object_.find(key);
  return entry == object_.end() || entry->is_null() ? nullptr : &*entry;
}

bool ConfigObject::has(const char* key) const { return find(key) != nullptr; }

namespace {

// Describes a value for an error message. Arrays and objects are not printed: a
// hostile file may nest them more deeply than a recursive printer can follow.
std::string shown(const json& value) {
  if (value.is_structured()) return fmt::format("an {} of {} entries", value.type_name(), value.size());
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

}  // namespace

void ConfigObject::complain(const std::string& key, const std::string& expected) const {
  const auto entry = object_.find(key);
  const std::string got = entry == object_.end() ? "nothing" : shown(*entry);
  throw Error(ErrorCode::data, fmt::format("[config] {}: `{}{}`: expected {}, got {}", file_, prefix_, key, expected, got));
}

void ConfigObject::missing(const char* key, const std::string& expected) const { complain(key, expected + " (the key is required)"); }

i64 ConfigObject::whole(const char* key, i64 low, i64 high, std::optional<i64> fallback) const {
  const std::string expected = fmt::format("a whole number from {} to {}", low, high);
  const json* value = find(key);
  if (!value) {
    if (fallback) return *fallback;
    missing(key, expected);
  }
  if (!value->is_number_integer()) complain(key, expected);
  // Numbers above 2^63 are stored unsigned, so these are compared with `high` before the conversion to i64.
  if (value->is_number_unsigned() && value->get<u64>() > static_cast<u64>(high)) complain(key, expected);
  const i64 number = value->get<i64>();
  if (number < low || number > high) complain(key, expected);
  return number;
}

double ConfigObject::real(const char* key, double low, double high, std::optional<double> fallback, bool above) const {
  const std::string expected = fmt::format("a number {} {} and at most {}", above ? "above" : "of at least", low, high);
  const json* value = find(key);
  if (!value) {
    if (fallback) return *fallback;
    missing(key, expected);
  }
  if (!value->is_number()) complain(key, expected);
  const double number = value->get<double>();
  if (!(above ? number > low : number >= low) || !(number <= high)) complain(key, expected);
  return number;
}

double ConfigObject::share(const char* key, double fallback) const {
  const json* value = find(key);
  if (!value) return fallback;
  const std::string expected = "a number of at least 0 and below 1";
  if (!value->is_number()) complain(key, expected);
  const double number = value->get<double>();
  if (!(number >= 0 && number < 1)) complain(key, expected);
  return number;
}

bool ConfigObject::flag(const char* key, bool fallback) const {
  const json* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) complain(key, "true or false");
  return value->get<bool>();
}

std::string ConfigObject::text(const char* key, std::optional<std::string> fallback) const {
  const json* value = find(key);
  if (!value) {
    if (fallback) return *fallback;
    missing(key, "a text");
  }
  if (!value->is_string()) complain(key, "a text");
  return value->get<std::string>();
}

}  // namespace spillway::models
