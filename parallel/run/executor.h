// Runs instruction lists with one thread per lane (sequence of instructions of one kind); the calling thread runs the lane that computes.
// Each lane runs its instructions in order and waits for the instructions that `after` names; there is no other ordering. If an instruction
// fails, the other lanes stop before their next instruction, and run() rethrows the error. The threads are kept from one list to the next.
// Used by one thread.
#pragma once
#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/program/program.h"
#include "parallel/program/timing.h"

namespace spillway::parallel {

class Executor {
 public:
  Executor();
  ~Executor();

  /// Calls `perform` once for each instruction, on the thread of the instruction's lane; `perform` returns the microseconds for
  /// which it waited for transfers. Returns one Timing per instruction. At the first error, calls `failed` with this error, once.
  /// Threads may then be waiting for events that will never be set, so `failed` must make these events fail.
  std::vector<Timing> run(const List& list, const std::function<double(const Instruction&)>& perform,
                          const std::function<void(const std::exception_ptr&)>& failed = {});

 private:
  class LaneThread;
  // the threads of the lanes; each is started by the first list that uses its lane
  std::array<std::unique_ptr<LaneThread>, kLanes> threads_;
};

}  // namespace spillway::parallel
