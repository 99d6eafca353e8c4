// Implements Python's two ways to format values into a text: '%s' % x and '{}'.format(x). Only the
// features that templates use are supported. For any other feature, an error names that feature.
#pragma once
#include "data/template/values/builtins.h"

namespace spillway::data::chat {

/// Returns `format % right`, where `format` is a text. If `right` is a tuple, its items are the values to format; if it is a dict, they
/// are the named values. Any other `right` is the only value. If `format` is Markup, the values are escaped and the result is Markup.
Value percent_format(Run& run, const Value& format, const Value& right);

/// Returns `format.format(…)`. Markup is treated as in percent_format().
Value brace_format(Run& run, const Value& format, const Arguments& arguments);

}  // namespace spillway::data::chat
