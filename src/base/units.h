// Sizes and times as users write and read them. `K M G T` with or without `iB` are powers of 1024, `KB MB GB TB` of 1000; a bare number is
// an error. Times: `30s 30m 2h`, `1-12:00:00`. Errors: Error(usage) that names `what`, the text and an example.
#pragma once
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway {

/// "640MiB" -> 671088640. `what` is the flag's name for the message.
i64 parse_bytes(std::string_view text, std::string_view what);
/// Seconds.
i64 parse_duration_s(std::string_view text, std::string_view what);
/// "640.0 MiB", "12 B": four significant digits at most, powers of 1024.
std::string format_bytes(i64 bytes);
/// "1 h 04 min", "3.2 s", "850 ms".
std::string format_duration(double seconds);

}  // namespace spillway
