// Parses and formats sizes and times as users write them. `K M G T` with or without `iB` are powers of 1024, `KB MB GB TB` powers of 1000;
// a bare number is an error. Times look like `30s 30m 2h` or `1-12:00:00`. Errors are Error(usage) and name the flag, the text and an
// example.
#pragma once
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway {

/// Returns the number of bytes: "640MiB" gives 671088640. `what` names the flag in the error message.
i64 parse_bytes(std::string_view text, std::string_view what);
/// Returns a time in seconds. `what` names the flag in the error message.
i64 parse_duration_s(std::string_view text, std::string_view what);
/// Returns a size in powers of 1024 with at most four significant digits: "640.0 MiB", "12 B".
std::string format_bytes(i64 bytes);
/// Returns a readable time: "1 h 04 min", "3.2 s", "850 ms".
std::string format_duration(double seconds);

}  // namespace spillway
