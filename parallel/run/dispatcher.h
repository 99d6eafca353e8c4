// A Dispatcher passes each instruction of a list to the object that carries it out. This class contains the complete mapping from
// operations to these objects, and nothing else. Used by the threads of the executor.
#pragma once
#include "parallel/run/computing.h"
#include "parallel/run/data_meetings.h"
#include "parallel/run/executor.h"
#include "parallel/run/moves.h"
#include "parallel/run/numbers.h"
#include "parallel/run/pipeline_messages.h"
#include "parallel/run/stepping.h"

namespace spillway::parallel {

/// The objects of a rank, each of which carries out some kinds of instructions.
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

  /// Runs every instruction of a list as described at Executor. Returns the instructions' times, measured on the
  /// CPU. If an instruction fails, the other ranks fail too, so that they do not wait for this rank.
  std::vector<Timing> run(const List& list);
  /// Replaces `timings` by the times measured on the device. `timings` must be what run()
  /// returned for the earliest list for which end() was not called yet.
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
