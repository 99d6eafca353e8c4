#include "trainer/deepspeed/reader.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/settings/text.h"

namespace spillway::trainer {

const DeepspeedReader::Json* DeepspeedReader::at(const std::string& path) const {
  const Json* value = &root_;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (!value->is_object()) return nullptr;
    const auto found = value->find(path.substr(begin, end - begin));
    if (found == value->end()) return nullptr;
    value = &*found;
    begin = end + 1;
  }
  return value;
}

const DeepspeedReader::Json* DeepspeedReader::find(const std::string& path) const {
  const Json* value = at(path);
  return value == nullptr || value->is_null() || *value == "auto" ? nullptr : value;
}

bool DeepspeedReader::is_auto(const std::string& path) const {
  const Json* value = at(path);
  return value != nullptr && *value == "auto";
}

void DeepspeedReader::refuse_value(const std::string& path, const std::string& expected) const {
  refuse("[" + what(path) + "] expected " + expected + ", got " + at(path)->dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::optional<double> DeepspeedReader::number(const std::string& path) const {
  const Json* value = find(path);
  if (value == nullptr) return {};
  if (!value->is_number()) refuse_value(path, "a number");
  return value->get<double>();
}

std::optional<i64> DeepspeedReader::integer(const std::string& path) const {
  const std::optional<double> value = number(path);
  if (!value) return {};
  if (*value != std::floor(*value) || std::abs(*value) > 0x1p53) refuse_value(path, "a whole number");
  return static_cast<i64>(*value);
}

std::optional<std::string> DeepspeedReader::text(const std::string& path) const {
  const Json* value = find(path);
  if (value == nullptr) return {};
  if (!value->is_string()) refuse_value(path, "a string");
  return value->get<std::string>();
}

bool DeepspeedReader::flag(const std::string& path, bool otherwise) const {
  const Json* value = find(path);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse_value(path, "true or false");
  return value->get<bool>();
}

void DeepspeedReader::give(const std::string& flag, const std::string& text, const std::string& because) {
  given[flag] = {{text}, what(because)};
}

void DeepspeedReader::give(const std::string& flag, double value, const std::string& because) { give(flag, print_number(value), because); }

}  // namespace spillway::trainer
