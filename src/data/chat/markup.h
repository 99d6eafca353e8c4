// Markup: texts that `safe` and `escape` made, as Python's markupsafe 3.0 has them. What is joined to one, put into one as into a format or
// handed to one's methods is escaped first, and comes out as Markup.
#pragma once
#include <string>

#include "data/chat/builtins.h"

namespace spillway::data::chat {

Value make_markup(String text);
/// Markup where `model` is Markup, else a plain text.
Value make_text_like(const Value& model, String text);

/// markupsafe.escape: Markup as it is; anything else as a text, with references of HTML for & < > ' ".
Value escape(Run& run, const Value& value);

/// The same of a method of Markup: escapes those arguments that Markup's own method would, and makes the texts of the outcome Markup.
void escape_arguments(Run& run, const std::string& method, Arguments& arguments);
Value marked(Run& run, const std::string& method, const Value& outcome);

}  // namespace spillway::data::chat
