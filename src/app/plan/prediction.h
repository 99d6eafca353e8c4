// What a chosen plan is expected to take on this node: the time of each kind of step it has, by simulation, and the memory of the process.
// Made once a plan stands; a kind of step is simulated when it is first asked for. One thread.
#pragma once
#include "app/plan/node_rates.h"

namespace spillway::app {

class Prediction {
 public:
  /// `request` makes `plan`; both outlive this. `process_ranks`: that share the process, with plans like this one.
  Prediction(const parallel::Plan& plan, const parallel::PlanRequest& request, NodeRates node, int process_ranks)
      : plan_(plan), request_(request), node_(std::move(node)), process_ranks_(process_ranks) {}

  /// The cost of a training step that runs this Program of the plan with these two of the Program's lists. In a pipeline the ranks wait
  /// for each other.
  const StepCost& step(const parallel::Program& program, const parallel::List& head, const parallel::List& tail);
  /// The cost of a usual step: its norm is not clipped, and neither was that of the step before.
  const StepCost& step(const parallel::Program& program) { return step(program, program.head, program.commit); }
  /// Memory of the whole process at its most.
  i64 process_bytes() const;
  /// "predicted: 1.2 s a step, bound by disk (compute …); the GPU computes 60 % of the step; the process about 3.4 GiB; …", and what makes
  /// that doubtful.
  std::string text();
  const Rates& rates() const { return node_.rates; }
  /// That makes the plan.
  const parallel::PlanRequest& request() const { return request_; }

 private:
  StepCost simulated(const StepLists& lists) const;
  std::string step_text();

  const parallel::Plan& plan_;
  const parallel::PlanRequest& request_;
  const NodeRates node_;
  const int process_ranks_;
  std::map<std::pair<const parallel::List*, const parallel::List*>, StepCost> steps_;  // by its lists
};

}  // namespace spillway::app
