// The time of day in words, for what is made now.
#pragma once
#include <string>

namespace spillway::app {

std::string now_text();

}  // namespace spillway::app
