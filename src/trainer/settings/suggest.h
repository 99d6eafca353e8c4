// Builds error messages for unknown flags, keys and commands that suggest what the user probably meant. All functions are pure, thus
// thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "trainer/settings/option.h"

namespace spillway::trainer {

/// Returns the known word that is the fewest edits away from `word` (base/edit_distance.h). Returns an empty
/// string if all known words are too far away: more than 2 edits and more than half the length of `word`.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// Returns the error message for an option `name` (without leading dashes) that the command does not know. The message suggests the right
/// spelling, Spillway's name for an option of another program, the command that has this option, or the nearest name. If `flags` is true,
/// names are written as flags, otherwise as JSON keys.
std::string unknown_option(Command command, std::string_view name, bool flags);
/// Returns the error message for an unknown command.
std::string unknown_command(std::string_view name);

}  // namespace spillway::trainer
