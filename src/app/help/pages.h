// Builds documents from the option table: the documentation page that lists all flags, a manual page and bash completions. All functions
// are pure.
#pragma once
#include <string>

namespace spillway::app {

/// Returns the text of docs/commands.md.
std::string markdown_page();
/// Returns a manual page for section 1, in groff's man macros (man(7)).
std::string man_page();
/// Returns a script for bash to source. After a flag with fixed choices the script completes those choices, after any other flag file
/// names.
std::string bash_completion();

}  // namespace spillway::app
