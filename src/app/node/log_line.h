// A line of a run's log.txt, by whoever writes it.
#pragma once
#include <string>
#include <string_view>

namespace spillway::app {

/// With the local time of day before it and its end.
std::string log_line(std::string_view text);

}  // namespace spillway::app
