// Runs instruction lists with one thread per lane; the compute lane runs on the calling thread. Each lane takes its instructions in order
// and waits for the instructions named in `after`; there is no other ordering. An error in one lane stops the other lanes before their next
// instruction and is rethrown by run(). The threads are kept from list to list. For one thread.
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

  /// Calls `perform` once for each instruction, on its lane's thread; it returns the microseconds that it waited for transfers. Returns one
  /// Timing per instruction. Calls `failed` once, with the first error, while lanes may still be waiting for events that will never come:
  /// `failed` must make them fail.
  std::vector<Timing> run(const List& list, const std::function<double(const Instruction&)>& perform,
                          const std::function<void(const std::exception_ptr&)>& failed = {});

 private:
  class LaneThread;
  std::array<std::unique_ptr<LaneThread>, kLanes> threads_;  // each is started by the first list that uses its lane
};

}  // namespace spillway::parallel
