// Returns the current date and time as text. A report states with this text when it was made.
#pragma once
#include <string>

namespace spillway::app {

std::string now_text();

}  // namespace spillway::app
