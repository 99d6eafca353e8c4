// One JSON object, read with care.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace spillway::app {

/// Keys in the text's order. Throws Error(usage), which names `flag`, through which the text came, or the key: what is no JSON object, and
/// a key given twice in an object, of which JSON libraries silently keep one. `where`: the file, for messages.
nlohmann::ordered_json parse_object(const std::string& text, const std::string& where, const std::string& flag);

}  // namespace spillway::app
