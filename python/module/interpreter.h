// The GIL, and the end of the interpreter while other threads are in this module. Once the interpreter ends, Python ends each thread that
// asks for the GIL: until 3.13 by unwinding its stack, which C++ answers with abort(), from 3.14 on by stopping it. Rules:
//   1. Such a thread stops for ever, without the GIL and without a turn (turn.h). It is a daemon thread: Python waits for all others.
//   2. Python is not called from C++ any more once its atexit functions run.
//   3. A process that exits while a thread computes or trains leaves with its status at once: the destructors of static objects would take
//      from that thread what it uses. A run that trains loses no more than by `kill -9`: it goes on from its last checkpoint or state.
#pragma once
#include <cxxabi.h>
#include <nanobind/nanobind.h>

namespace spillway::python {

namespace nb = nanobind;

/// Stops this thread until the process ends. It must not hold the GIL.
[[noreturn]] void stop_for_ever() noexcept;

/// call(), which may run Python code. Where Python ends the thread in there, it stops for ever.
template <class Call>
void call_python(const Call& call) {
  try {
    call();
  } catch (abi::__forced_unwind&) {
    stop_for_ever();
  }
}

/// Takes the GIL again with what PyEval_SaveThread() gave, or stops for ever.
void take_gil(PyThreadState* state) noexcept;

/// This thread is one of Python's, and holds the GIL.
bool holds_gil() noexcept;

/// The GIL is released while one lives.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

/// The GIL is held while one lives, on any thread that does not hold it. Once the interpreter is ending, the thread stops for ever.
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

/// While one lives this thread uses what a process that exits would destroy.
class UnderWay {
 public:
  UnderWay();
  ~UnderWay();
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
};

/// Throws Error(usage) once the interpreter is ending: for what calls Python from other threads.
void check_not_ending(const char* what);

/// Asks to be called when the interpreter ends. (That it is the process's main one: python/spillway/_program.py.)
void bind_interpreter(nb::module_& module);

}  // namespace spillway::python
