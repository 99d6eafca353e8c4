// Builds the texts of --help from the option table. All functions are pure, thus thread-safe.
#pragma once
#include <string>

#include "app/names/names.h"
#include "trainer/settings/option.h"

namespace spillway::app {

/// Returns the help of the whole program: its commands, one line each, and its exit statuses.
std::string program_help();
/// Returns a command's flags by group, each with its default and unit, in 80 columns. If
/// `everything` is false, the help of train and plan lists only the flags that a first command needs.
std::string command_help(Command command, bool everything = true);

}  // namespace spillway::app
