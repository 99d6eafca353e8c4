// Keeps in a run's folder what its plan promised and how one of its steps went, for whoever watches the run (plan.json, timeline.json).
// Neither is needed to go on: what cannot be written is said, and the run goes on. All ranks make the same calls; the first one writes. One
// thread.
#pragma once
#include "app/ranks/peers.h"
#include "app/record/run_plan.h"
#include "app/record/timeline.h"
#include "parallel/run/rank.h"

namespace spillway::app {

class Recorder {
 public:
  /// Of a process that goes on from step `first` to step `last`.
  Recorder(std::filesystem::path run, const Peers& peers, i64 first, i64 last);

  /// Both return a line of text to be said, or nothing.
  std::string plan(const RunPlan& plan) const;
  /// After each step; it looks at the third, or at the last of fewer.
  std::string step(i64 step, const parallel::Rank& rank) const;

 private:
  std::string write(const std::filesystem::path& file, const std::string& text) const;

  const std::filesystem::path run_;
  const Peers& peers_;
  const i64 looked_at_;
};

/// What a rank did in its last step.
RankTimeline timeline_of(const parallel::Rank& rank, const std::string& name);
/// What a step of this plan would be.
RankTimeline timeline_of(const parallel::Program& program, const StepCost& cost, const std::string& name);

}  // namespace spillway::app
