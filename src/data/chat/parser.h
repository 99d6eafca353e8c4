// Parses a template into its tree. Pure.
#pragma once
#include <string>
#include <string_view>

#include "data/chat/syntax.h"

namespace spillway::data::chat {

struct Syntax {
  Block body;
  bool has_generation = false;
};

/// Throws Error(data) "[chat template] FILE, line N: expected …, got …" for what is no template, and for statements beyond those of chat
/// templates, by name.
Syntax parse(std::string_view source, const std::string& file);

}  // namespace spillway::data::chat
