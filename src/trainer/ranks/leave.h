// Ends a process in which a thread waits for a GPU that will never answer. Such a process cannot release its resources in the usual way.
#pragma once
#include <string>

namespace spillway::trainer {

/// Reports `why` to the process that started this rank, or else on stderr, and ends this process at once with exit status 6, that of a rank
/// that hangs. May be called from any thread.
[[noreturn]] void leave_stuck(const std::string& why);

}  // namespace spillway::trainer
