// The current date and time as text, for reports to say when they were made.
#pragma once
#include <string>

namespace spillway::app {

std::string now_text();

}  // namespace spillway::app
