// Computes the numbers of a step that all ranks need before any of them continues: the loss, and the gradient norm from the sums of squares
// of its tiles. Every rank receives the numbers of all ranks and adds them in the same order, so all ranks get the same result.
#pragma once
#include "parallel/run/step_under_way.h"
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class Numbers {
 public:
  explicit Numbers(Workplace& work);

  /// Computes the sums of squares of a finished gradient, and copies the gradient to host memory in the same pass if it is stored there.
  void reduce(const Instruction& i);
  /// Exchanges the sums and the loss among all ranks (a collective), after all Reduces are done. `loss_sum` is this rank's.
  void agree(double loss_sum);
  /// Returns the step's result, after agree(). `overlap` is that of the Program that is running. Sets `factor` to the clip factor.
  StepResult judge(const StepUnderWay& step, OptimizerOverlap overlap, double& factor) const;

 private:
  std::vector<u32> not_finite() const;
  // Views into told_, the buffer of the exchange: the part of one rank, and all parts.
  std::span<double> part(const Parts& parts, int rank) const;
  std::span<std::byte> all(const Parts& parts) const;
  void agree_with_data_ranks();
  void agree_with_pipeline_ranks();

  Workplace& work_;
  std::vector<std::span<double>> square_sums_;  // when training, by group and tile; those of all ranks after agree()
  std::span<double> told_;                      // buffer in which the ranks' numbers are exchanged
  double loss_sum_ = 0;                         // loss of all ranks after agree()
  bool own_loss_finite_ = true;
};

}  // namespace spillway::parallel
