// What a run writes to its scratch drives, and how long they are rated to take it. Checkpoints are not counted. A value; thread-safe.
#pragma once
#include <optional>
#include <string>

#include "base/types.h"

namespace spillway::app {

struct Wear {
  double bytes_per_step = 0, bytes_per_token = 0, bytes_per_day = 0;  // of all drives together
  std::optional<double> days;  // until each has seen its rated writes; empty: no rating, or no writes
};

/// `written_bytes` to nvme in `steps` steps of `tokens` tokens in all and `seconds`; each drive is rated for `endurance_bytes`,
/// and as many `drives` wear like the one that takes most (shares.h: drives_worth). All zero where a divisor is.
Wear wear_of(i64 written_bytes, i64 steps, i64 tokens, double seconds, std::optional<i64> endurance_bytes, double drives);
/// "1.20 GiB a step, 312 KiB a token, 1.80 TiB a day at this rate; rated writes (600TBW a drive) in 303 days"
std::string to_text(const Wear& wear, std::optional<i64> endurance_bytes);

}  // namespace spillway::app
