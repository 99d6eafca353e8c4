// What the records of a run are read with: numbers that are there, of the kind that was expected and of a size that can be; what is not
// is taken for absent. Pure functions.
#pragma once
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/types.h"
#include "offload/tier.h"

namespace spillway::app {

constexpr double kMostRecorded = 9e18;  // what a byte count or a step may be

inline std::optional<double> number_in(const nlohmann::ordered_json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_number()) return {};
  const auto value = found->get<double>();
  return std::isfinite(value) && std::abs(value) < kMostRecorded ? std::optional(value) : std::nullopt;
}

inline i64 whole_in(const nlohmann::ordered_json& object, const char* key, i64 otherwise = 0) {
  const auto value = number_in(object, key);
  return value ? static_cast<i64>(*value) : otherwise;
}

inline std::string text_in(const nlohmann::ordered_json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

inline nlohmann::ordered_json part_in(const nlohmann::ordered_json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() ? *found : nlohmann::ordered_json();
}

inline std::array<i64, offload::kTiers> tiers_in(const nlohmann::ordered_json& object, const char* key) {
  const auto bytes = part_in(object, key);
  return {whole_in(bytes, "device"), whole_in(bytes, "host"), whole_in(bytes, "nvme")};
}

inline nlohmann::ordered_json by_tier_json(const std::array<i64, offload::kTiers>& bytes) {
  return {{"device", bytes[0]}, {"host", bytes[1]}, {"nvme", bytes[2]}};
}

}  // namespace spillway::app
