// Measures how the time of a pass is spread over ops. The clock works on a
// CPU only, since the ops of a GPU have not run yet when they are recorded.
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
  double seconds = 0, flops = 0;  // flops are counted as by FlopCount
  i64 calls = 0;
};
/// The time of each op, by the op's name, which is the name of the function that records the op.
using OpTimes = std::map<std::string, OpTime, std::less<>>;

/// While a clock lives, it measures the thread that created it. Each time an op is recorded or its backward has run, the time since the
/// previous such event is added to the op's entry in `times`. An op is recorded right after it has computed, so this is the time that the
/// op took. If clocks are nested, only the innermost counts. `times` must outlive the clock. Each clock belongs to one thread.
class OpClock {
 public:
  explicit OpClock(OpTimes& times);
  ~OpClock();
  OpClock(const OpClock&) = delete;
  OpClock& operator=(const OpClock&) = delete;

  /// Returns the thread's innermost clock; null if there is none.
  static OpClock* current();
  /// Adds the time since the previous op, or since the clock was created, to the time of `op`.
  void ran(const char* op);

 private:
  OpTimes& times_;
  OpClock* const outer_;
  FlopCount count_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  double flops_ = 0;
};

}  // namespace spillway::autograd
