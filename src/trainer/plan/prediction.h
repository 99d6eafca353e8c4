// Prediction gives the time of a step of the chosen plan on this node, by simulation, and the memory of the process. Steps differ in the
// lists of instructions that they run. Each kind of step is simulated when it is first asked for. For use by one thread.
#pragma once
#include "trainer/plan/node_rates.h"

namespace spillway::trainer {

class Prediction {
 public:
  /// Predicts for `plan`, which must have been made from `request`. `plan` and `request` must outlive this object. `process_ranks` is the
  /// number of ranks (as threads) in this process. Each of them is assumed to need as much memory as this rank.
  Prediction(const parallel::Plan& plan, const parallel::PlanRequest& request, NodeRates node, int process_ranks)
      : plan_(plan), request_(request), node_(std::move(node)), process_ranks_(process_ranks) {}

  /// Returns the cost of a training step that runs the lists `head` and `tail` of `program`, which belongs to the plan. In a pipeline the
  /// cost includes the time in which ranks wait for each other.
  const StepCost& step(const parallel::Program& program, const parallel::List& head, const parallel::List& tail);
  /// Returns the cost of a step without gradient clipping that follows a step without gradient clipping.
  const StepCost& step(const parallel::Program& program) { return step(program, program.head, program.commit); }
  /// Returns the peak memory of the whole process in bytes.
  i64 process_bytes() const;
  /// Returns "predicted: 1.2 s a step, bound by disk (compute …); the GPU computes 60 % of the
  /// step; the process takes about 3.4 GiB; …", followed by the reasons to doubt the prediction.
  std::string text();
  const Rates& rates() const { return node_.rates; }
  /// Returns the request from which the plan was made.
  const parallel::PlanRequest& request() const { return request_; }

 private:
  StepCost simulated(const StepLists& lists) const;
  std::string step_text();

  const parallel::Plan& plan_;
  const parallel::PlanRequest& request_;
  const NodeRates node_;
  const int process_ranks_;
  // key: the instruction lists that begin and end the step
  std::map<std::pair<const parallel::List*, const parallel::List*>, StepCost> steps_;
};

}  // namespace spillway::trainer
