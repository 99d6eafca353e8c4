// Parses one JSON object that a user wrote. Repeated keys are refused.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace spillway::trainer {

/// Returns the JSON object with its keys in the order of the text. Throws Error(usage) if the text is not a JSON object. Also throws if any
/// object has a key twice, because JSON libraries silently keep one. Messages name `flag`, by which the text was given, and `where`, its
/// file.
nlohmann::ordered_json parse_object(const std::string& text, const std::string& where, const std::string& flag);

}  // namespace spillway::trainer
