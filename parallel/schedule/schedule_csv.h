// Pipeline schedules as CSV, in the notation of torch.distributed.pipelining. Each row is a rank and each cell an action such as "3F0"
// (stage, F B I or W, micro-batch), an overlapped pair of a forward and a backward such as "(0F3;3B1)OVERLAP_F_B", or empty for an idle
// slot. A stage belongs to the rank whose row names it. Pure functions except read_schedule_csv(); thread-safe.
#pragma once
#include <filesystem>
#include <string_view>

#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

/// Returns the schedule, checked by check_schedule() and with its idle slots. `name` appears in messages and becomes the schedule's name.
/// Spaces around cells, CR LF and empty lines at the end are accepted; quoted cells are not. Throws Error(data) that names row and column
/// (from 1) and what was expected.
Schedule parse_schedule_csv(std::string_view text, const std::string& name);
/// Reads a schedule from a file; its name is the path. Throws Error(data) also if the file cannot be read or is larger than any schedule
/// can be.
Schedule read_schedule_csv(const std::filesystem::path& path);

/// Returns the schedule as CSV, with the idle slots that it contains; with_idle() and without_idle() add or remove them. The text ends in a
/// newline and parses back to the same rows.
std::string to_csv(const Schedule& schedule);

}  // namespace spillway::parallel
