// The timeline of one step says when each lane of each rank (computing, copies, disk, messages) ran which kind of instruction. The
// times were measured by the executor or predicted by the simulator. Bars that are too short to be seen in a drawing are merged. The
// run folder keeps the timeline of the third step in timeline.json. The types are plain values, and the functions are thread-safe.
#pragma once
#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/program/program.h"
#include "parallel/program/timing.h"

namespace spillway::trainer {

struct Bar {
  parallel::Lane lane = parallel::Lane::compute;
  std::string kind;  // name of a phase of the step (phases.h), or "other"
  double start_us = 0, end_us = 0;
  i64 block = -1, micro_batch = -1;  // -1: the bar belongs to no block or micro-batch, or to several
  i64 count = 1;                     // number of instructions that were merged into this bar
};

struct RankTimeline {
  std::string name;  // name of the rank; empty if the run has only one rank
  std::vector<Bar> bars;
};

struct Timeline {
  i64 step = 0;  // number of the step; 0 for a predicted step
  std::vector<RankTimeline> ranks;
  double end_us() const;
};

/// Adds a bar for each instruction of `list`. The list began `begin_us` microseconds after the start of the step.
void add_list(std::vector<Bar>& bars, const parallel::List& list, std::span<const parallel::Timing> timings, double begin_us);
/// Merges neighbouring bars of a lane that are too short to be seen, and keeps the longest `most` bars.
std::vector<Bar> thinned(std::vector<Bar> bars, size_t most);

constexpr size_t kMostBars = 4000;  // largest number of bars of a rank

std::string to_json(const RankTimeline& rank);
std::string to_json(i64 step, const std::vector<std::string>& ranks);
/// Reads the timeline from a run folder. Returns nothing if the folder has no readable timeline.
std::optional<Timeline> read_timeline(const std::filesystem::path& run);
std::filesystem::path timeline_file(const std::filesystem::path& run);

}  // namespace spillway::trainer
