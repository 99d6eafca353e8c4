// The current date and time as text, to be printed on what is made now.
#pragma once
#include <string>

namespace spillway::app {

std::string now_text();

}  // namespace spillway::app
