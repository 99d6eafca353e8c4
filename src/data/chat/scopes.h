// Which names the parts of a template read and set, found from its tree: Jinja decides some of what a name means before it runs.
#pragma once
#include "data/chat/syntax.h"

namespace spillway::data::chat {

/// Fills Block::unset of `root` and of all scopes inside it.
void find_unset_names(Block& root);

/// Whether `name`, one of kSpecialNames, is read in the block before, in the template's order, anything in it sets that name. What decides
/// whether Jinja gives a macro its caller, kwargs and varargs, and a loop its variable `loop`. Fills Block::first_uses.
bool reads_unset(Block& block, std::string_view name);

/// Whether `target`, of set or for, has `name` in it.
bool writes(const Node& target, std::string_view name);

}  // namespace spillway::data::chat
