#include "trainer/record/json_reading.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace spillway::trainer {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::optional<double> number_in(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_number()) return {};
  const auto value = found->get<double>();
  return std::isfinite(value) && std::abs(value) < kMostRecorded ? std::optional(value) : std::nullopt;
}

i64 whole_in(const Json& object, const char* key, i64 otherwise) {
  const auto value = number_in(object, key);
  return value ? static_cast<i64>(*value) : otherwise;
}

std::string text_in(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

Json part_in(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() ? *found : Json();
}

std::array<i64, offload::kTiers> tiers_in(const Json& object, const char* key) {
  const Json bytes = part_in(object, key);
  return {whole_in(bytes, "device"), whole_in(bytes, "host"), whole_in(bytes, "nvme")};
}

Json by_tier_json(const std::array<i64, offload::kTiers>& bytes) { return {{"device", bytes[0]}, {"host", bytes[1]}, {"nvme", bytes[2]}}; }

}  // namespace spillway::trainer
