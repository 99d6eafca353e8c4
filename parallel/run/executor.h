// Runs lists: a thread a lane (the compute lane on the caller's), each taking its instructions in order, each waiting for `after`. It knows
// no other order. An error in one lane stops the others before their next instruction and is rethrown by run(). The threads stay from list
// to list. Used by one thread.
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

  /// `perform` is called once for each instruction, on its lane's thread, and says how many microseconds it waited for its transfers.
  /// Returns one Timing an instruction. `failed` is called once, with the first error, while lanes may still wait for what will not come:
  /// it makes them fail.
  std::vector<Timing> run(const List& list, const std::function<double(const Instruction&)>& perform,
                          const std::function<void(const std::exception_ptr&)>& failed = {});

 private:
  class LaneThread;
  std::array<std::unique_ptr<LaneThread>, kLanes> threads_;  // from the first list on that has something for them
};

}  // namespace spillway::parallel
