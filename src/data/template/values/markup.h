// Markup is text that the filter `safe` or `escape` marked as HTML, as in Python's markupsafe 3.0. Text that is joined to Markup, formatted
// into it or passed to its methods is escaped first. The result is Markup again.
#pragma once
#include <string>

#include "data/template/values/builtins.h"

namespace spillway::data::chat {

Value make_markup(String text);
/// Returns Markup if `model` is Markup, and a plain text otherwise.
Value make_text_like(const Value& model, String text);

/// Escapes a value as markupsafe.escape does. Markup is returned unchanged. Any
/// other value becomes text, in which & < > ' " are replaced by HTML entities.
Value escape(Run& run, const Value& value);

/// escape_arguments() and marked() turn a call of a text's method into one of Markup's method. escape_arguments() escapes
/// those arguments that Markup's own method would escape. marked() turns texts in the method's result into Markup.
void escape_arguments(Run& run, const std::string& method, Arguments& arguments);
Value marked(Run& run, const std::string& method, const Value& outcome);

}  // namespace spillway::data::chat
