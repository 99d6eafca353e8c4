// Long texts on a terminal: through the user's pager, as git shows them.
#pragma once
#include <string>

namespace spillway::app {

/// Through $PAGER, else less, which ends by itself after a text of one screen. False: there is none, or it could not be started, and
/// nothing was shown. Needs stdout to be a terminal.
bool show_in_pager(const std::string& text);

}  // namespace spillway::app
