// Markup is text that `safe` or `escape` marked as HTML, as in Python's markupsafe 3.0. Any text that is joined to it, formatted into it or
// passed to its methods is escaped first, and the result is Markup again.
#pragma once
#include <string>

#include "data/chat/builtins.h"

namespace spillway::data::chat {

Value make_markup(String text);
/// Returns Markup if `model` is Markup, else a plain text.
Value make_text_like(const Value& model, String text);

/// Does what markupsafe.escape does: returns Markup unchanged, and any other value as text in which & < > ' " are replaced by HTML
/// entities.
Value escape(Run& run, const Value& value);

/// Implement methods of Markup: the first escapes those arguments that Markup's own method would escape, the second turns texts in the
/// result into Markup.
void escape_arguments(Run& run, const std::string& method, Arguments& arguments);
Value marked(Run& run, const std::string& method, const Value& outcome);

}  // namespace spillway::data::chat
