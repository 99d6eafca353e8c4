// Finds which names the parts of a template read and set. Jinja makes this
// analysis before a template runs, and the meaning of some names depends on it.
#pragma once
#include "data/template/syntax/syntax.h"

namespace spillway::data::chat {

/// Fills the member `unset` of `root` and of all blocks inside `root`.
void find_unset_names(Block& root);

/// Returns true if the block reads `name`, one of kSpecialNames, before the block sets it, in the order of the template. The result
/// decides whether Jinja gives a macro its variables caller, kwargs and varargs, and a loop its variable `loop`. Fills Block::first_uses.
bool reads_unset(Block& block, std::string_view name);

/// Returns true if `target`, the target of a set or for statement, contains `name`.
bool writes(const Node& target, std::string_view name);

}  // namespace spillway::data::chat
