// Prints values as Python does with str(), repr() and json.dumps(). Fails for functions, loops and generators, because Python prints them
// with an address or a class name.
#pragma once
#include <string>

#include "data/template/values/value.h"

namespace spillway::data::chat {

String to_text(Run& run, const Value& value);
void append_text(Run& run, String& out, const Value& value);
void append_repr(Run& run, String& out, const Value& value);

/// Returns the number as Python's repr prints it: with the fewest digits that read back as the same number.
std::string float_repr(double d);

struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  std::optional<String> indent;
  String comma = ", ", colon = ": ";
};
void append_json(Run& run, String& out, const Value& value, const JsonStyle& style);

}  // namespace spillway::data::chat
