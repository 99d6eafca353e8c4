// How Python prints values: str(), repr() and json.dumps(). What Python prints with an address or by the name of a class (functions, loops,
// generators) is refused by name.
#pragma once
#include <string>

#include "data/chat/value.h"

namespace spillway::data::chat {

String to_text(Run& run, const Value& value);
void append_text(Run& run, String& out, const Value& value);
void append_repr(Run& run, String& out, const Value& value);

/// Python's repr of a float: the fewest digits that give it back.
std::string float_repr(double d);

struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  std::optional<String> indent;
  String comma = ", ", colon = ": ";
};
void append_json(Run& run, String& out, const Value& value, const JsonStyle& style);

}  // namespace spillway::data::chat
