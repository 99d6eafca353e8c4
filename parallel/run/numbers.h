// The numbers of a step that all ranks need before any may go on: the loss, and the gradient's norm from the square sums of its tiles.
// Every rank has every rank's and adds them in one order, so all judge alike.
#pragma once
#include "parallel/run/step_under_way.h"
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class Numbers {
 public:
  explicit Numbers(Workplace& work);

  /// The square sums of a finished gradient, which goes to host memory on the way if it rests there.
  void reduce(const Instruction& i);
  /// All reduces have been; `loss_sum` is this rank's. All ranks come to it together.
  void agree(double loss_sum);
  /// Once all agree. `overlap`: of the Program under way. `factor` becomes the clip factor.
  StepResult judge(const StepUnderWay& step, OptimizerOverlap overlap, double& factor) const;

 private:
  std::vector<u32> not_finite() const;
  // Of what all ranks tell each other: a rank's, everybody's.
  std::span<double> part(const Parts& parts, int rank) const;
  std::span<std::byte> all(const Parts& parts) const;
  void agree_with_data_ranks();
  void agree_with_pipeline_ranks();

  Workplace& work_;
  std::vector<std::span<double>> square_sums_;  // when training, by group, tile; of all ranks once they have agreed
  std::span<double> told_;                      // what all ranks tell each other
  double loss_sum_ = 0;                         // of all ranks likewise
  bool own_loss_finite_ = true;
};

}  // namespace spillway::parallel
