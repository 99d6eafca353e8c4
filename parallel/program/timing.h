// Holds the times at which the instructions of a list ran, measured by the executor or estimated by the simulator. Plain values.
#pragma once

namespace spillway::parallel {

/// Says when an instruction ran, in microseconds since the list started, and how much of that time it waited for its own transfers
/// (disk_us).
struct Timing {
  double start_us = 0, end_us = 0;
  double disk_us = 0;
};

}  // namespace spillway::parallel
