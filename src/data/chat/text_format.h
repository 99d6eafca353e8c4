// Python's two ways to put values into a text: '%s' % x, and '{}'.format(x), with the parts that templates use; the rest is refused by
// name.
#pragma once
#include "data/chat/builtins.h"

namespace spillway::data::chat {

/// `format % right`: a tuple has several values, a dict named ones, all else is the only value.
Value percent_format(Run& run, const std::string& format, const Value& right);

/// `format.format(…)`.
Value brace_format(Run& run, const std::string& format, const Arguments& arguments);

}  // namespace spillway::data::chat
