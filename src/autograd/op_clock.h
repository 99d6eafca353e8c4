// Where the time of a pass goes, op by op, on a CPU: a GPU's ops have not run when they are recorded.
//   OpTimes times;
//   { OpClock clock(times); run(model, context).backward(); }
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "tensor/dtype.h"
#include "tensor/flop_count.h"

namespace spillway::autograd {

struct OpTime {
  double seconds = 0, flops = 0;  // FlopCount
  i64 calls = 0;
};
/// By the op's name: the function it stands in.
using OpTimes = std::map<std::string, OpTime, std::less<>>;

/// While one lives, what passes on the thread that made it is added to `times`, up to each op that is recorded or whose backward has run:
/// an op is recorded right behind its computing, so that what lies before it is its own. Of several the innermost counts. `times` must
/// outlive it. Not across threads.
class OpClock {
 public:
  explicit OpClock(OpTimes& times);
  ~OpClock();
  OpClock(const OpClock&) = delete;
  OpClock& operator=(const OpClock&) = delete;

  /// The thread's innermost; null: none.
  static OpClock* current();
  /// What has passed since the op before, or since this was made, was `op`'s.
  void ran(const char* op);

 private:
  OpTimes& times_;
  OpClock* const outer_;
  FlopCount count_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  double flops_ = 0;
};

}  // namespace spillway::autograd
