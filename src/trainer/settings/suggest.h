// Builds error messages for unknown flags, keys and commands that suggest what the user probably meant. All functions are pure, thus
// thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "trainer/settings/option.h"

namespace spillway::trainer {

/// Returns the first of nearest_words() (base/edit_distance.h), or an empty text if there is none.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// Returns the error message for an unknown option `name`, given without leading dashes, of a command. The
/// message suggests the right spelling, Spillway's name for an option of another program, the command that has
/// this option, advice, or the nearest names. If `flags` is true, names are written as flags, otherwise as JSON keys.
std::string unknown_option(Command command, std::string_view name, bool flags);
/// Returns the same for a flag that was written with one dash; `name` is given without it.
std::string unknown_short_flag(Command command, std::string_view name);
/// Returns the error message for an unknown command.
std::string unknown_command(std::string_view name);
/// Returns ": write bf16" or ": did you mean adamw?" to append to the refusal of the value `given` of an option whose allowed words are
/// `known`. Returns an empty text if no word is near. For `option` see value_for() in foreign_names.h.
std::string value_hint(std::string_view option, const std::vector<std::string>& known, std::string_view given);

}  // namespace spillway::trainer
