// --help, from the option table. Thread-safe: pure functions.
#pragma once
#include <string>

#include "app/flags/option.h"

namespace spillway::app {

/// The commands, one line each.
std::string program_help();
/// A command's flags by group, each with its default and unit, words not built yet named as such.
std::string command_help(Command command);

}  // namespace spillway::app
