// Decides whether the value of --pipeline-schedule is the name of a known schedule or a CSV file. Thread-safe.
#pragma once
#include <string>

namespace spillway::trainer {

/// Returns true if `name` ends in .csv, contains a slash, or is an existing file.
bool names_a_file(const std::string& name);
/// Throws Error(usage) for an unknown schedule and suggests the nearest known name. If `name` is PyTorch's or a paper's name of a known
/// schedule, that schedule is suggested.
[[noreturn]] void refuse_schedule_name(const std::string& name);

}  // namespace spillway::trainer
