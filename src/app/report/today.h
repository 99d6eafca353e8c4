// Returns the current date and time as text. Reports say with it when they were made.
#pragma once
#include <string>

namespace spillway::app {

std::string now_text();

}  // namespace spillway::app
