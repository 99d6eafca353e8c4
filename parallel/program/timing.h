// When the instructions of a list ran, measured by the executor or reckoned by the simulator. Values.
#pragma once

namespace spillway::parallel {

/// When an instruction ran, in microseconds since the list started, and how long of that it stood waiting for its own transfers.
struct Timing {
  double start_us = 0, end_us = 0;
  double disk_us = 0;
};

}  // namespace spillway::parallel
