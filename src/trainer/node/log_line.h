// Formats the lines of a run's log.txt. All code that writes to the file uses log_line(), so that every line begins with date and time.
#pragma once
#include <string>
#include <string_view>

namespace spillway::trainer {

/// Returns `text` with the local date and time before it and a newline after it.
std::string log_line(std::string_view text);

}  // namespace spillway::trainer
