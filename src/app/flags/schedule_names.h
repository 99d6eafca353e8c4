// Which pipeline schedule a user means: one of ours by name, or a CSV file. Thread-safe.
#pragma once
#include <string>

namespace spillway::app {

/// It ends in .csv, has a slash, or is there.
bool names_a_file(const std::string& name);
/// Throws Error(usage) with the nearest of the known names, torch's and the papers' among them.
[[noreturn]] void refuse_schedule_name(const std::string& name);

}  // namespace spillway::app
