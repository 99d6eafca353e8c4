// What else is made of the option table: the page of docs that lists all flags, a manual page and bash's completions. Pure functions.
#pragma once
#include <string>

namespace spillway::app {

/// docs/commands.md.
std::string markdown_page();
/// For man, section 1 (groff's man macros, man(7)).
std::string man_page();
/// To be sourced by bash; words behind a flag are those it may take, else files.
std::string bash_completion();

}  // namespace spillway::app
