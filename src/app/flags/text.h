// Single values as users write them, and back. Each parse_*(text, what) throws Error(usage) "[what] expected …, got …"; each print_*()
// gives text that parses to the same value, to the bit. Thread-safe: pure functions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "app/flags/config.h"
#include "base/error.h"

namespace spillway::app {

/// Throws Error(usage).
[[noreturn]] void refuse(const std::string& message);

/// The words with a space between each two.
std::string spaced(const std::vector<std::string>& words);

i64 parse_integer(const std::string& text, const std::string& what);
double parse_number(const std::string& text, const std::string& what);  // finite
bool parse_flag(const std::string& text, const std::string& what);
i64 parse_size(const std::string& text, const std::string& what);      // bytes
i64 parse_duration(const std::string& text, const std::string& what);  // seconds

std::string print_number(double value);
std::string print_size(i64 bytes);        // exact: "2GiB", "100GB", "123B"
std::string print_duration(i64 seconds);  // exact: "30m", "90s"

/// "auto", "host", "device=2GiB,host=rest": exactly one tier takes the rest.
PlacementWish parse_placement(const std::string& text, const std::string& what);
std::string print_placement(const PlacementWish& wish);
/// PATH[:SIZE]; what follows the last colon is a size when it starts with a digit and holds no slash.
ScratchPath parse_scratch(const std::string& text, const std::string& what);
std::string print_scratch(const ScratchPath& path);
/// "500", "30m", "1epoch".
Cadence parse_cadence(const std::string& text, const std::string& what);
std::string print_cadence(const Cadence& cadence);
/// "3:6", from 1.
StepRange parse_step_range(const std::string& text, const std::string& what);
std::string print_step_range(const StepRange& range);
/// "600TBW": bytes, of 10^12; also PBW, of 10^15.
i64 parse_endurance(const std::string& text, const std::string& what);
std::string print_endurance(i64 bytes);
/// "cpu", "cuda", "cuda:2".
std::string parse_device(const std::string& text, const std::string& what);
/// As one word of a shell, to be pasted there.
std::string shell_word(const std::string& word);
/// "auto", "never", "must" or a path.
Resume parse_resume(const std::string& text, const std::string& what);
std::string print_resume(const Resume& resume);

}  // namespace spillway::app
