// Parses a template into its syntax tree. Pure functions.
#pragma once
#include <string>
#include <string_view>

#include "data/template/syntax/syntax.h"

namespace spillway::data::chat {

struct Syntax {
  Block body;
  bool has_generation = false;
};

/// Parses the source of a template. Throws Error(data) "[chat template] FILE, line N: expected …, got …" if the source is
/// not a valid template. If the source uses a statement that chat templates do not need, the message names that statement.
Syntax parse(std::string_view source, const std::string& file);

}  // namespace spillway::data::chat
