// Python's two ways to put values into a text: '%s' % x, and '{}'.format(x), with the parts that templates use; the rest is refused by
// name.
#pragma once
#include "data/chat/builtins.h"

namespace spillway::data::chat {

/// `format % right`, of a text `format`: a tuple has several values, a dict named ones, all else is the only value. Markup escapes what it
/// takes in and stays Markup.
Value percent_format(Run& run, const Value& format, const Value& right);

/// `format.format(…)`, the same.
Value brace_format(Run& run, const Value& format, const Arguments& arguments);

}  // namespace spillway::data::chat
