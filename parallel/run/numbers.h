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
  void agree_with_data_ranks();
  void agree_with_pipeline_ranks();

  Workplace& work_;
  std::vector<std::vector<double>> square_sums_;  // by group, tile; of all ranks once they have agreed
  double loss_sum_ = 0;                           // likewise
};

}  // namespace spillway::parallel
