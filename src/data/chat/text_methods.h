// Python's methods of str, and what filters share with them.
#pragma once
#include "data/chat/builtins.h"

namespace spillway::data::chat {

/// The text itself is argument 0.
std::span<const Builtin> text_methods();

/// Python's str.splitlines.
Values split_lines(Run& run, std::string_view text, bool keep_ends);
/// Python's str.replace; a negative `most` replaces all.
Value replace_text(Run& run, const std::string& text, const std::string& old, const std::string& by, i64 most);
/// Python's str.center, ljust and rjust: `side` 0, -1 and 1.
Value pad_text(Run& run, const std::string& text, i64 width, const std::string& fill, int side);
Value join_texts(Run& run, const std::string& between, const Values& items);

}  // namespace spillway::data::chat
