// Ends a process in which a thread waits for a GPU that will never answer. Such a process cannot release its resources in the usual way.
#pragma once
#include <string>

namespace spillway::trainer {

/// Ends this process at once with exit status 6, which means that a rank hangs. First reports `why` to
/// the process that started this rank, or on stderr if there is none. May be called from any thread.
[[noreturn]] void leave_stuck(const std::string& why);

}  // namespace spillway::trainer
