// Handles the GIL, and the end of the interpreter while other threads are in this module. When the interpreter ends, Python ends each
// thread that asks for the GIL: until 3.13 by unwinding its stack, on which C++ calls abort(), from 3.14 on by stopping it. Rules:
//   1. Such a thread stops for ever, without the GIL and without a turn (turn.h). It is a daemon thread: Python waits for all others.
//   2. C++ does not call Python any more once Python's atexit functions run.
//   3. A process that exits while a thread computes or trains leaves with its status at once, because the destructors of static objects
//      would destroy what that thread uses. A training run loses no more than by `kill -9`: it resumes from its last checkpoint or state.
#pragma once
#include <cxxabi.h>
#include <nanobind/nanobind.h>

namespace spillway::python {

namespace nb = nanobind;

/// Stops this thread until the process ends. The thread must not hold the GIL.
[[noreturn]] void stop_for_ever() noexcept;

/// Runs call(), which may run Python code. If Python ends the thread during the call, the thread stops for ever.
template <class Call>
void call_python(const Call& call) {
  try {
    call();
  } catch (abi::__forced_unwind&) {
    stop_for_ever();
  }
}

/// Takes the GIL again with the state that PyEval_SaveThread() returned, or stops for ever.
void take_gil(PyThreadState* state) noexcept;

/// Returns true if this thread is known to Python and holds the GIL.
bool holds_gil() noexcept;

/// Releases the GIL for the lifetime of the object.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

/// Takes the GIL for the lifetime of the object, on any thread that does not
/// have it yet. Once the interpreter is ending, the thread stops for ever.
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

/// Declares, for the lifetime of the object, that this thread uses objects that a process destroys when it exits.
class UnderWay {
 public:
  UnderWay();
  ~UnderWay();
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
};

/// Throws Error(usage) once the interpreter is ending. Functions that call Python from other threads call this first.
void check_not_ending(const char* what);

/// Registers a function that runs when the interpreter ends. (python/spillway/_program.py checks that the interpreter is the main one of
/// the process.)
void bind_interpreter(nb::module_& module);

}  // namespace spillway::python
