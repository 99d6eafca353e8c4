// What the records of a run are read with: numbers that are there, of the kind that was expected and of a size that can be; what is not
// is taken for absent. Pure functions.
#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/types.h"
#include "offload/tier.h"

namespace spillway::app {

constexpr double kMostRecorded = 9e18;  // what a byte count or a step may be

std::optional<double> number_in(const nlohmann::ordered_json& object, const char* key);
i64 whole_in(const nlohmann::ordered_json& object, const char* key, i64 otherwise = 0);
/// Empty where there is none.
std::string text_in(const nlohmann::ordered_json& object, const char* key);
/// Null where there is none.
nlohmann::ordered_json part_in(const nlohmann::ordered_json& object, const char* key);
std::array<i64, offload::kTiers> tiers_in(const nlohmann::ordered_json& object, const char* key);
nlohmann::ordered_json by_tier_json(const std::array<i64, offload::kTiers>& bytes);

}  // namespace spillway::app
