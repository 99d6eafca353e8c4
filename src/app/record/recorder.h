// Writes two files into the run folder for whoever watches the run: plan.json, what the plan predicted, and timeline.json, how one of the
// steps went. The run does not need them: if one cannot be written, that is reported and the run goes on. All ranks make the same calls;
// rank 0 writes. Not thread-safe.
#pragma once
#include "app/ranks/peers.h"
#include "app/record/run_plan.h"
#include "app/record/timeline.h"
#include "parallel/run/rank.h"

namespace spillway::app {

class Recorder {
 public:
  /// `first` is the last step before this process began, `last` the last step of the run.
  Recorder(std::filesystem::path run, const Peers& peers, i64 first, i64 last);

  /// Writes plan.json. Returns a warning if that failed, else an empty text; so does step().
  std::string plan(const RunPlan& plan) const;
  /// To be called after each step. Writes timeline.json after the third step of this process, or after the last one if there are fewer.
  std::string step(i64 step, const parallel::Rank& rank) const;

 private:
  std::string write(const std::filesystem::path& file, const std::string& text) const;

  const std::filesystem::path run_;
  const Peers& peers_;
  const i64 looked_at_;
};

/// Returns the measured timeline of a rank's last step.
RankTimeline timeline_of(const parallel::Rank& rank, const std::string& name);
/// Returns the predicted timeline of a step of this program.
RankTimeline timeline_of(const parallel::Program& program, const StepCost& cost, const std::string& name);

}  // namespace spillway::app
