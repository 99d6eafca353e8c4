// Reads and writes pipeline schedules as CSV, in the notation of torch.distributed.pipelining. Each row is a rank and each cell is one of
// these: an action such as "3F0" (stage, one of F, B, I and W, micro-batch); an overlapped pair of a forward and a backward such as
// "(0F3;3B1)OVERLAP_F_B"; or nothing, for an idle slot. A stage belongs to the rank whose row names it. Pure functions except
// read_schedule_csv(); thread-safe.
#pragma once
#include <filesystem>
#include <string_view>

#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

/// Parses a schedule, including its idle slots, and checks it with check_schedule(). `name` appears in messages and becomes the schedule's
/// name. Spaces around cells, CR LF, and empty lines at the end are accepted; quoted cells are not. The text of Error(data) names the row
/// and the column (from 1) and says what was expected there.
Schedule parse_schedule_csv(std::string_view text, const std::string& name);
/// Reads a schedule from a file; the path becomes its name. Throws Error(data) also if the file cannot be read, or if it is larger than any
/// schedule can be.
Schedule read_schedule_csv(const std::filesystem::path& path);

/// Returns the schedule as CSV, with those idle slots that it contains; with_idle() and without_idle() add and remove them. The text ends
/// in a newline, and parsing it gives the same rows.
std::string to_csv(const Schedule& schedule);

}  // namespace spillway::parallel
