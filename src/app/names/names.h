// The program is written in terms of the trainer library and uses its names without a prefix.
#pragma once

namespace spillway::trainer {}

namespace spillway::app {
using namespace trainer;
}
