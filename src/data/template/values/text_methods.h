// Implements Python's methods of str, and functions that filters share with them.
#pragma once
#include "data/template/values/builtins.h"

namespace spillway::data::chat {

/// Returns the table of Python's str methods. Argument 0 of each method is the text itself.
std::span<const Builtin> text_methods();

/// Splits a text into lines as Python's str.splitlines does.
Values split_lines(Run& run, std::string_view text, bool keep_ends);
/// Replaces `old` as Python's str.replace does; a negative `most` replaces all occurrences.
Value replace_text(Run& run, std::string_view text, std::string_view old, std::string_view by, i64 most);
/// Pads a text to `width` characters as Python's str.center (`side` 0), ljust (-1) and rjust (1) do.
String pad_text(Run& run, std::string_view text, i64 width, std::string_view fill, int side);
/// Returns `text` repeated `times` times. The result is empty if `times` is not positive.
String repeated(Run& run, std::string_view text, i64 times);
Value join_texts(Run& run, std::string_view between, const Values& items);
/// Removes white space from the ends of a text as Python's str.strip does, or the characters in
/// `chars` if that is not null. `sides` has the meaning that it has in strip() of code_points.h.
Value strip_text(Run& run, const String& text, const String* chars, int sides);

/// find_first() returns the position of the first occurrence of `wanted` at or after `from`; find_last() returns that of the last
/// occurrence. Both return npos if there is none, and take linear time.
size_t find_first(Run& run, std::string_view text, std::string_view wanted, size_t from = 0);
size_t find_last(Run& run, std::string_view text, std::string_view wanted);

}  // namespace spillway::data::chat
