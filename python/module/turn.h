// Who computes with tensors, models and optimizers: one thread at a time. The rule, with which no lock of their own is needed:
//   1. Graphs, leaves, weights and the elements of tensors are touched by the thread whose turn it is alone, in the order of calls.
//   2. Python's objects, the fields of an Array among them, are touched under the GIL alone.
//   3. Nobody waits for the GIL while it is his turn, and no Python code runs in a turn; so neither waits for the other in a circle.
// A turn of microseconds keeps the GIL where nobody else has a turn; a long one, and one that has to be waited for, releases it.
#pragma once
#include <functional>

#include "python/module/interpreter.h"

namespace spillway::python {

/// This thread's turn; within another one of this thread nothing more. Waits for those who asked before, without the GIL. The GIL is held
/// when one is made and when it ends; in between it is not to be counted on.
class Turn {
 public:
  explicit Turn(bool long_enough);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  /// Turns of this thread that contain each other.
  static int depth();

 private:
  const UnderWay under_way_;
  PyThreadState* state_ = nullptr;
};

/// Runs `drop`, which lets go of an object of Python's and may so run any code: now if this thread holds the GIL outside of a turn, else
/// when a turn ends. Not at all once the interpreter is gone.
void drop_in_python(std::function<void()> drop);

}  // namespace spillway::python
