#include "app/flags/json_object.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "app/flags/text.h"
#include "base/line_column.h"

namespace spillway::app {

nlohmann::ordered_json parse_object(const std::string& text, const std::string& where, const std::string& flag) {
  using Json = nlohmann::ordered_json;
  std::vector<std::set<std::string>> seen;  // of each object that is open
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) seen.emplace_back();
    if (event == Json::parse_event_t::object_end) seen.pop_back();
    if (event == Json::parse_event_t::key && !seen.back().insert(parsed.get<std::string>()).second)
      refuse("[" + parsed.get<std::string>() + " in " + where + "] expected each key once, got it twice");
    return true;
  };
  Json object;
  try {
    object = Json::parse(text, watch);
  } catch (const Json::parse_error& error) {
    refuse("[" + flag + "] expected JSON in " + where + ", which goes wrong in " + line_and_column(text, error.byte));
  } catch (const Json::out_of_range&) {
    refuse("[" + flag + "] expected numbers of at most 1.8e308 in " + where + ", got a larger one");
  }
  if (!object.is_object()) refuse("[" + flag + "] expected one JSON object in " + where + ", got " + object.type_name());
  return object;
}

}  // namespace spillway::app
