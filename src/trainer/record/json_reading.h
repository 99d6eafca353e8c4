// Reads fields from the JSON records in a run's folder. A field counts as absent if it is missing, has
// another type than expected, or is a number that is too large to be right. All functions are pure.
#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/types.h"
#include "offload/tier.h"

namespace spillway::trainer {

constexpr double kMostRecorded = 9e18;  // larger byte counts and step numbers cannot be right and count as absent

std::optional<double> number_in(const nlohmann::ordered_json& object, const char* key);
i64 whole_in(const nlohmann::ordered_json& object, const char* key, i64 otherwise = 0);
/// Returns the text under `key`, or an empty text if the field is absent.
std::string text_in(const nlohmann::ordered_json& object, const char* key);
/// Returns the JSON value under `key`, or null if the field is absent.
nlohmann::ordered_json part_in(const nlohmann::ordered_json& object, const char* key);
std::array<i64, offload::kTiers> tiers_in(const nlohmann::ordered_json& object, const char* key);
nlohmann::ordered_json by_tier_json(const std::array<i64, offload::kTiers>& bytes);

}  // namespace spillway::trainer
