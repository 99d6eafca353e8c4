// Computes the numbers of a step that all ranks need before any rank goes on: the loss, and the gradient norm, which is computed from the
// sum of squares of each tile. Every rank receives the numbers of all ranks and adds them in the same order, so all ranks get the same
// result.
#pragma once
#include "parallel/run/step_under_way.h"
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class Numbers {
 public:
  explicit Numbers(Workplace& work);

  /// Computes the sums of squares of a finished gradient. If host memory stores the gradient, the same pass copies the gradient there.
  void reduce(const Instruction& i);
  /// Exchanges the sums of squares and the loss among all ranks, after all Reduce
  /// instructions. `loss_sum` is the loss of this rank. agree() is a collective.
  void agree(double loss_sum);
  /// Returns the result of the step. Called after agree(). `overlap` says when the optimizer runs in the instruction list that is being
  /// executed. Sets `factor` to the clip factor.
  StepResult judge(const StepUnderWay& step, OptimizerOverlap overlap, double& factor) const;

 private:
  std::vector<u32> not_finite() const;
  // part() and all() return views into told_, the buffer in which ranks exchange numbers: the part of one rank, and the parts of all ranks.
  std::span<double> part(const Parts& parts, int rank) const;
  std::span<std::byte> all(const Parts& parts) const;
  void agree_with_data_ranks();
  void agree_with_pipeline_ranks();

  Workplace& work_;
  std::vector<std::span<double>> square_sums_;  // when training: the sums of squares by group and tile; after agree(), those of all ranks
  std::span<double> told_;                      // the buffer in which the ranks' numbers are exchanged
  double loss_sum_ = 0;                         // loss of all ranks after agree()
  bool own_loss_finite_ = true;
};

}  // namespace spillway::parallel
