// The times at which the instructions of a list ran, measured by the executor or estimated by the simulator. Plain values.
#pragma once

namespace spillway::parallel {

/// When an instruction ran, in microseconds since the list started. `disk_us`: for how much of that time it waited for its own transfers.
struct Timing {
  double start_us = 0, end_us = 0;
  double disk_us = 0;
};

}  // namespace spillway::parallel
