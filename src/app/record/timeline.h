// When the lanes of one step did what, on each rank: measured by the executor or reckoned by the simulator, thinned to what a drawing can
// show. A run's folder keeps that of its third step (timeline.json). Values; thread-safe.
#pragma once
#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/program/program.h"
#include "parallel/program/timing.h"

namespace spillway::app {

struct Bar {
  parallel::Lane lane = parallel::Lane::compute;
  std::string kind;  // a phase (phases.h), or "other"
  double start_us = 0, end_us = 0;
  i64 block = -1, micro_batch = -1;  // -1: none, or several
  i64 count = 1;                     // instructions that it stands for
};

struct RankTimeline {
  std::string name;  // empty: of a rank alone
  std::vector<Bar> bars;
};

struct Timeline {
  i64 step = 0;  // 0: predicted
  std::vector<RankTimeline> ranks;
  double end_us() const;
};

/// Adds a list that began so long after the step.
void add_list(std::vector<Bar>& bars, const parallel::List& list, std::span<const parallel::Timing> timings, double begin_us);
/// Neighbours of a lane that are too short to be seen become one, at most `most` in all.
std::vector<Bar> thinned(std::vector<Bar> bars, size_t most);

constexpr size_t kMostBars = 4000;  // of a rank

std::string to_json(const RankTimeline& rank);
std::string to_json(i64 step, const std::vector<std::string>& ranks);
/// Empty where there is none that can be read.
std::optional<Timeline> read_timeline(const std::filesystem::path& run);
std::filesystem::path timeline_file(const std::filesystem::path& run);

}  // namespace spillway::app
