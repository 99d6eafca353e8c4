#include "trainer/settings/json_object.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/line_column.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {

nlohmann::ordered_json parse_object(const std::string& text, const std::string& where, const std::string& flag) {
  JsonFault fault;
  nlohmann::ordered_json object = parse_ordered_json(text, &fault, RepeatedKeys::refuse);
  if (object.is_discarded()) refuse("[" + flag + "] " + where + ": " + fault.in_words(text));
  if (!object.is_object()) refuse("[" + flag + "] expected one JSON object in " + where + ", got " + object.type_name());
  return object;
}

}  // namespace spillway::trainer
