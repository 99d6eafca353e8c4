// Pipeline schedules as CSV, in torch.distributed.pipelining's notation: a row a rank, a cell an action "3F0" (stage, F B I or W,
// micro-batch), "(0F3;3B1)OVERLAP_F_B" a forward and a backward that overlap, an empty cell an idle slot. Which rank holds a stage is which
// row names it. Pure functions but for read_schedule(); thread-safe.
#pragma once
#include <filesystem>
#include <string_view>

#include "parallel/schedule/schedule.h"

namespace spillway::parallel {

/// Whole and checked (check_schedule()), with the idle slots it has. `name` stands in messages and becomes the schedule's. Spaces around
/// cells, CR LF and empty lines at the file's end are taken; no cell may be quoted. Throws Error(data) naming row
/// and column (from 1) and what was expected.
Schedule parse_schedule_csv(std::string_view text, const std::string& name);
/// Its name is the path. Throws Error(data) also when the file cannot be read or is larger than any schedule can be.
Schedule read_schedule_csv(const std::filesystem::path& path);

/// The cells as they stand: with_idle() and without_idle() choose. Ends in a newline; reads back to the same rows.
std::string to_csv(const Schedule& schedule);

}  // namespace spillway::parallel
