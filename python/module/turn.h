// A turn is the right to compute with tensors, models and optimizers; one thread has it at a time. With these rules the objects need no
// locks of their own:
//   1. Graphs, leaves, weights and the elements of tensors are touched only by the thread that has the turn, in the order of calls.
//   2. Python's objects, including the fields of an Array, are touched only under the GIL.
//   3. Nobody waits for the GIL during a turn, and no Python code runs in a turn; so turn and GIL cannot deadlock.
// A turn of microseconds keeps the GIL if no other thread has a turn; a long turn, and one that has to wait, releases the GIL.
#pragma once
#include <functional>

#include "python/module/interpreter.h"

namespace spillway::python {

/// Takes the turn for this thread; inside another turn of the same thread it does nothing more. Waits, without the GIL, for the threads
/// that asked before. The caller must hold the GIL when it makes and when it ends a turn; in between it must not rely on holding it. Throws
/// Error(usage) in the forward of a block (pass.h), in which only operations on tensors may compute.
class Turn {
 public:
  explicit Turn(bool long_enough);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  /// Returns how many nested turns this thread has.
  static int depth();

 private:
  const UnderWay under_way_;
  PyThreadState* state_ = nullptr;
};

/// Runs `drop`, which releases a Python object and so may run any Python code. Runs it now if this thread holds the GIL outside of a turn,
/// otherwise when a turn ends or drop_kept() is called. Does not run it if the interpreter has ended.
void drop_in_python(std::function<void()> drop);
/// Runs what drop_in_python() has kept for later. The caller must hold the GIL outside of a turn.
void drop_kept();

}  // namespace spillway::python
