// Jinja's filters, in three tables by what they are for.
#pragma once
#include "data/chat/builtins.h"

namespace spillway::data::chat {

std::span<const Builtin> text_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> list_filters();

}  // namespace spillway::data::chat
