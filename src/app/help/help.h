// Builds the texts of --help from the option table. All functions are pure, thus thread-safe.
#pragma once
#include <string>
#include <vector>

#include "app/names/names.h"
#include "trainer/settings/option.h"

namespace spillway::app {

/// Returns the help of the whole program: its commands, one line each, and its exit statuses.
std::string program_help();
/// Returns a command's flags by group, each with its default and unit, in 80 columns.
std::string command_help(Command command);
/// Returns the help that train and plan show first, in 80 columns and about 40 lines: one line for each flag that has a `brief`,
/// those of a group together.
std::string short_help(Command command);
/// Returns the headings of options in the order in which each first occurs.
std::vector<std::string> groups_of(const std::vector<const Option*>& options);
/// Returns what an option does and the range of its value.
std::string description(const Option& option);
/// Returns a text as lines of at most `width` columns, `indent` of which are spaces. A word that is longer has a line of its own.
std::string wrapped(const std::string& text, size_t indent, size_t width);

}  // namespace spillway::app
