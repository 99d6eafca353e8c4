// The end of a process in which somebody waits for a GPU that will never answer: nothing of it can be given back in order.
#pragma once
#include <string>

namespace spillway::app {

/// Says why, to whoever started this rank or on stderr, and ends the process at once with the status of a rank that hangs (6). From any
/// thread.
[[noreturn]] void leave_stuck(const std::string& why);

}  // namespace spillway::app
