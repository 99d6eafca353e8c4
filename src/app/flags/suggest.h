// What an unknown word probably meant. Thread-safe: pure functions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "app/flags/option.h"

namespace spillway::app {

/// The word with the fewest edits (base/edit_distance.h); empty when there is none within half of `word`'s length.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// The message for an unknown option `name` (no dashes) of the command: the same option of other programs by our name, the option's own
/// spelling, the command it belongs to, or the nearest. `flags`: write names as flags, else as keys.
std::string unknown_option(Command command, std::string_view name, bool flags);
/// For an unknown command.
std::string unknown_command(std::string_view name);

}  // namespace spillway::app
