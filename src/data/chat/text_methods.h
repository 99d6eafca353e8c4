// Python's methods of str, and what filters share with them.
#pragma once
#include "data/chat/builtins.h"

namespace spillway::data::chat {

/// The text itself is argument 0.
std::span<const Builtin> text_methods();

/// Python's str.splitlines.
Values split_lines(Run& run, std::string_view text, bool keep_ends);
/// Python's str.replace; a negative `most` replaces all.
Value replace_text(Run& run, std::string_view text, std::string_view old, std::string_view by, i64 most);
/// Python's str.center, ljust and rjust: `side` 0, -1 and 1.
String pad_text(Run& run, std::string_view text, i64 width, std::string_view fill, int side);
/// Nothing where `times` is not positive.
String repeated(Run& run, std::string_view text, i64 times);
Value join_texts(Run& run, std::string_view between, const Values& items);
/// Python's str.strip of white space, or of `chars` where that is not null; `sides` as strip() of code_points.h has them.
Value strip_text(Run& run, const String& text, const String* chars, int sides);

/// Where `wanted` stands first at or behind `from`, or last; npos where it does not. The time is linear in the sizes.
size_t find_first(Run& run, std::string_view text, std::string_view wanted, size_t from = 0);
size_t find_last(Run& run, std::string_view text, std::string_view wanted);

}  // namespace spillway::data::chat
