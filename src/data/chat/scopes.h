// Finds which names the parts of a template read and set. Jinja uses this before a template runs to decide what some names mean.
#pragma once
#include "data/chat/syntax.h"

namespace spillway::data::chat {

/// Fills Block::unset of `root` and of all scopes inside it.
void find_unset_names(Block& root);

/// Returns true if the block reads `name`, one of kSpecialNames, before anything in it sets that name, in the template's order. This
/// decides whether Jinja gives a macro its caller, kwargs and varargs, and a loop its variable `loop`. Fills Block::first_uses.
bool reads_unset(Block& block, std::string_view name);

/// Returns true if `target`, the target of a set or for statement, contains `name`.
bool writes(const Node& target, std::string_view name);

}  // namespace spillway::data::chat
