// Computes how much a run writes to its scratch drives (--nvme), and in how many days these writes reach the
// drives' rated endurance. Checkpoints are not counted. Wear is a plain value; the functions are thread-safe.
#pragma once
#include <optional>
#include <string>

#include "base/types.h"

namespace spillway::trainer {

struct Wear {
  double bytes_per_step = 0, bytes_per_token = 0, bytes_per_day = 0;  // bytes written, summed over all drives
  std::optional<double> days;  // days until a drive reaches its rated writes; empty without a rating or without writes
};

/// Computes the wear from `written_bytes` bytes that were written to nvme in `steps` steps, which had `tokens` tokens and took `seconds`
/// in all. Each drive is rated for `endurance_bytes`. `drives` is the total of the bytes as a multiple of the bytes on the drive that
/// gets the most (drives_worth in shares.h). If `steps`, `tokens` or `seconds` is zero, the rate that would be divided by it is zero.
Wear wear_of(i64 written_bytes, i64 steps, i64 tokens, double seconds, std::optional<i64> endurance_bytes, double drives);
/// Returns a text such as "1.20 GiB a step, 312 KiB a token, 1.80 TiB a day at this rate; rated writes (600TBW a drive) in 303 days".
std::string to_text(const Wear& wear, std::optional<i64> endurance_bytes);

}  // namespace spillway::trainer
