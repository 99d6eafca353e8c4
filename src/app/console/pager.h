// Shows long texts on a terminal through the user's pager, as git does.
#pragma once
#include <string>

namespace spillway::app {

/// Shows the text with the program that the variable PAGER names. If the variable is not set, less shows the text, and exits by itself if
/// the text fits on one screen. Returns false, and shows nothing, if no pager exists or it could not be started. stdout must be a terminal.
bool show_in_pager(const std::string& text);

}  // namespace spillway::app
