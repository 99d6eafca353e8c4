// --help, from the option table. Thread-safe: pure functions.
#pragma once
#include <string>

#include "app/flags/option.h"

namespace spillway::app {

/// The commands, one line each.
std::string program_help();
/// A command's flags by group, each with its default and unit, words not built yet named as such; in 80 columns. Not `everything`: of train
/// and plan those that a first command needs.
std::string command_help(Command command, bool everything = true);

}  // namespace spillway::app
