#include "data/rows/json_line.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/line_column.h"

namespace spillway::data {
namespace {

constexpr i64 kMaxId = std::numeric_limits<i32>::max();

// Extracts the explanation from a message of the JSON parser. The explanation comes after the error number and the position.
std::string reason(const std::string& what) {
  const size_t at = what.rfind(" - ");
  const std::string tail = at == what.npos ? "" : what.substr(at + 3);
  return tail.empty() ? "something else" : "an error (" + tail.substr(0, 120) + ")";
}

}  // namespace

JsonLine::JsonLine(std::string_view line, const std::string& file, i64 number) : line_(line), file_(file), number_(number) {
  JsonFault fault;
  json_ = std::make_unique<Json>(parse_ordered_json(line, &fault));
  if (fault.byte > 0) reject(fault.byte - 1, "expected one JSON object, got " + reason(fault.detail));
  if (json_->is_discarded()) reject(0, "expected " + fault.expected);
  if (!json_->is_object()) reject(0, std::string("expected an object, got ") + shown(*json_));
}

JsonLine::~JsonLine() = default;

JsonLine::Json JsonLine::take(const char* key) { return std::move((*json_)[key]); }

std::string JsonLine::shown(const Json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  if (value.is_string()) return "a text";
  if (value.is_null()) return "null";
  return value.is_boolean() ? "a boolean" : "a number";
}

void JsonLine::reject(size_t byte, const std::string& what) const {
  const std::string place = line_and_column(line_, byte + 1);  // the text "line 1, column C", of which only the column is used
  throw Error(ErrorCode::data, fmt::format("[data] {}, line {}{}: {}", file_, number_, place.substr(place.find(',')), what));
}

void JsonLine::reject(const JsonPath& path, const std::string& expected, const Json* got) const {
  reject_at(path, fmt::format("expected {}, got {}", expected, got ? shown(*got) : "none"));
}

const JsonLine::Json* JsonLine::find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

const JsonLine::Json* JsonLine::given(const char* key) const {
  const Json* value = find(*json_, key);
  return value && !value->is_null() ? value : nullptr;
}

const std::string& JsonLine::text_in(const Json& object, JsonPath path, const char* key) const {
  const Json* value = find(object, key);
  path.emplace_back(key);
  if (!value || !value->is_string()) reject(path, fmt::format("a text as `{}`", key), value);
  return value->get_ref<const std::string&>();
}

const JsonLine::Json& JsonLine::list(const char* key) const {
  const Json* items = find(*json_, key);
  if (!items || !items->is_array()) reject({key}, fmt::format("a list as `{}`", key), items);
  if (items->empty()) reject_at({key}, fmt::format("expected at least one item in `{}`, got none", key));
  for (size_t i = 0; i < items->size(); ++i) {
    if (!(*items)[i].is_object()) reject({key, i}, fmt::format("an object as item {} of `{}`", i + 1, key), &(*items)[i]);
  }
  return *items;
}

std::string JsonLine::text_if_any(const char* key) const { return given(key) ? text(key) : ""; }

std::vector<i64> JsonLine::numbers(const char* key, i64 least, bool booleans) const {
  const Json* items = find(*json_, key);
  if (!items || !items->is_array()) reject({key}, fmt::format("a list of numbers as `{}`", key), items);
  std::vector<i64> values;
  values.reserve(items->size());
  for (const Json& item : *items) {
    const bool whole = item.is_number_integer() && (!item.is_number_unsigned() || item.get<u64>() <= static_cast<u64>(kMaxId));
    i64 value = whole ? item.get<i64>() : least - 1;
    if (booleans && item.is_boolean()) value = item.get<bool>();
    if (value < least || value > kMaxId)
      reject_at({key, values.size()},
                fmt::format("expected whole numbers from {} to {} in `{}`, got {}", least, kMaxId, key, item.dump().substr(0, 40)));
    values.push_back(value);
  }
  return values;
}

}  // namespace spillway::data
