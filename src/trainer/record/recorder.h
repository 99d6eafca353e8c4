// Recorder writes two files into the run folder for programs and people that watch the run: plan.json says what the plan
// predicted, and timeline.json says when each instruction of one step ran. The run itself does not need these files. If a file
// cannot be written, a warning is returned and the run continues. All ranks make the same calls; rank 0 writes. Not thread-safe.
#pragma once
#include "parallel/run/rank.h"
#include "trainer/ranks/peers.h"
#include "trainer/record/run_plan.h"
#include "trainer/record/timeline.h"

namespace spillway::trainer {

class Recorder {
 public:
  /// Creates a recorder. `first` is the last step before this process began, `last` the last step of the run.
  Recorder(std::filesystem::path run, const Peers& peers, i64 first, i64 last);

  /// Writes plan.json. Returns a warning if the file cannot be written, otherwise an empty text. step() returns the same for timeline.json.
  std::string plan(const RunPlan& plan) const;
  /// Must be called after each step. Writes timeline.json after the third step of
  /// this process, or after the last step of the run if there are fewer than three.
  std::string step(i64 step, const parallel::Rank& rank) const;

 private:
  std::string write(const std::filesystem::path& file, const std::string& text) const;

  const std::filesystem::path run_;
  const Peers& peers_;
  const i64 looked_at_;
};

/// Returns the measured timeline of a rank's last step.
RankTimeline timeline_of(const parallel::Rank& rank, const std::string& name);
/// Returns the predicted timeline of a step that runs `program`.
RankTimeline timeline_of(const parallel::Program& program, const StepCost& cost, const std::string& name);

}  // namespace spillway::trainer
