// Parses and prints single values as users write them. Each parse_*(text, what) throws Error(usage) "[what] expected …, got …" if the
// text does not parse. Each print_*() returns text that parses to exactly the same value. All functions are pure, thus thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "trainer/settings/config.h"
#include "trainer/settings/value.h"

namespace spillway::trainer {

/// Throws Error(usage) with the given message.
[[noreturn]] void refuse(const std::string& message);

/// Joins the words with single spaces.
std::string spaced(const std::vector<std::string>& words);

i64 parse_integer(const std::string& text, const std::string& what);
double parse_number(const std::string& text, const std::string& what);  // refuses infinity and NaN
bool parse_flag(const std::string& text, const std::string& what);
i64 parse_size(const std::string& text, const std::string& what);      // returns bytes
i64 parse_duration(const std::string& text, const std::string& what);  // returns seconds

std::string print_number(double value);
std::string print_size(i64 bytes);        // prints the exact size: "2GiB", "100GB", "123B"
std::string print_duration(i64 seconds);  // prints the exact time: "30m", "90s"

/// Reads the value of a --place option: a text such as "auto", "host" or "device=2GiB,host=rest", or a mapping from tiers to sizes or
/// "rest". Exactly one tier takes the rest.
PlacementWish parse_placement(const Value& value, const std::string& what);
std::string print_placement(const PlacementWish& wish);
/// Parses PATH[:SIZE]. The text after the last colon is a size if it starts
/// with a digit and contains no slash. Otherwise that text is part of PATH.
ScratchPath parse_scratch(const std::string& text, const std::string& what);
std::string print_scratch(const ScratchPath& path);
/// Reads an interval of steps ("500", or a whole number), time ("30m") or epochs ("1epoch").
Cadence parse_cadence(const Value& value, const std::string& what);
std::string print_cadence(const Cadence& cadence);
/// Reads "first:last", such as "3:6", or a sequence of the two. Steps are counted from 1.
StepRange parse_step_range(const Value& value, const std::string& what);
std::string print_step_range(const StepRange& range);
/// Parses a drive's rated endurance, such as "600TBW", and returns bytes. TBW counts 10^12 bytes, PBW 10^15.
i64 parse_endurance(const std::string& text, const std::string& what);
std::string print_endurance(i64 bytes);
/// Checks that the text is a device, "cpu", "cuda" or "cuda:2", and returns it.
std::string parse_device(const std::string& text, const std::string& what);
/// Returns `word` so quoted that a shell reads it as one word; without quotes if none are needed.
std::string shell_word(const std::string& word);
/// Parses "auto", "never", "must" or the path of a checkpoint.
Resume parse_resume(const std::string& text, const std::string& what);
std::string print_resume(const Resume& resume);

}  // namespace spillway::trainer
