// Parses and formats sizes and times as users write them. Sizes with the units `K M G T`, with or without `iB`, are powers of 1024; sizes
// in `KB MB GB TB` are powers of 1000. A number without a unit is an error. Times look like `30s 30m 2h` or `1-12:00:00`. Errors are
// Error(usage) and name the flag, the text and an example.
#pragma once
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway {

/// Parses a size in bytes: "640MiB" gives 671088640. `what` names the flag in the error message.
i64 parse_bytes(std::string_view text, std::string_view what);
/// Parses a time and returns it in seconds. `what` names the flag in the error message.
i64 parse_duration_s(std::string_view text, std::string_view what);
/// Formats a size in powers of 1024 with at most four significant digits: "640.0 MiB", "12 B".
std::string format_bytes(i64 bytes);
/// Formats a time for readers: "1 h 04 min", "3.2 s", "850 ms".
std::string format_duration(double seconds);

}  // namespace spillway
