// Who of a rank does what an instruction says, on the device's lanes: the whole list of operations is here and nothing else is. Used by the
// threads of the executor.
#pragma once
#include "parallel/run/computing.h"
#include "parallel/run/data_meetings.h"
#include "parallel/run/executor.h"
#include "parallel/run/moves.h"
#include "parallel/run/numbers.h"
#include "parallel/run/pipeline_messages.h"
#include "parallel/run/stepping.h"

namespace spillway::parallel {

/// The parts of a rank.
struct RankParts {
  RankParts(const nn::Sequential& model, Workplace& work, StepUnderWay& step)
      : computing(model, work, step), moves(work), meetings(work, step), messages(work, step), numbers(work), stepping(work, step) {}

  Computing computing;
  Moves moves;
  DataMeetings meetings;
  PipelineMessages messages;
  Numbers numbers;
  Stepping stepping;
};

class Dispatcher {
 public:
  Dispatcher(Workplace& work, RankParts& parts) : work_(work), parts_(parts) {}

  /// Every instruction of a list, as Executor has it. An error makes the other ranks fail too. The times are the CPU's.
  std::vector<Timing> run(const List& list);
  /// Of the first run() that has not been ended: makes what it returned the device's times.
  void end(std::vector<Timing>& timings) { work_.device.lanes->end(timings); }

 private:
  double carry_out(const Instruction& i);
  double move(const Instruction& i);
  void compute(const Instruction& i);

  Workplace& work_;
  RankParts& parts_;
  Executor executor_;
};

}  // namespace spillway::parallel
