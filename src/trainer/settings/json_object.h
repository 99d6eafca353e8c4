// Parses one JSON object that a user wrote, refusing repeated keys.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace spillway::trainer {

/// Returns the object with its keys in the order of the text. Throws Error(usage) if the text is not a JSON object, or if an object has a
/// key twice, of which JSON libraries silently keep one. Messages name `flag`, by which the text was given, and `where`, its file.
nlohmann::ordered_json parse_object(const std::string& text, const std::string& where, const std::string& flag);

}  // namespace spillway::trainer
