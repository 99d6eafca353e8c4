// What a plan's row of the optimizer state is called.
#pragma once
#include <string>

#include "optim/state_format.h"

namespace spillway::parallel {

/// "optimizer state (master, m, v)"; of a rule of matrices with those of the rest: "(momentum or m, v)", of Adafactor "(v or its means)".
std::string state_text(const optim::StateFormat& format);

}  // namespace spillway::parallel
