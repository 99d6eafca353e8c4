#include "python/module/interpreter.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "base/error.h"

namespace spillway::python {
namespace {

thread_local bool released = false;  // true while this thread has released the GIL

std::atomic<int> under_way{0};

struct Ending {
  std::mutex mutex;
  std::condition_variable changed;
  bool begun = false;
  int entering = 0;  // the number of threads that are about to take the GIL
  std::thread::id by;
  std::terminate_handler otherwise = nullptr;

  bool concerns_this_thread() const { return begun && by != std::this_thread::get_id(); }
};
// Returns the state of the interpreter's end. It is never destroyed: threads may look at it until the process ends.
Ending& ending() {
  static auto* const one = new Ending();
  return *one;
}

// The handler of std::terminate. Python ends a thread by unwinding its stack. The unwinding
// calls std::terminate if it meets a noexcept function before it reaches call_python().
[[noreturn]] void stop_or_terminate() {
  Ending& end = ending();
  bool ours = false;
  {
    const std::lock_guard locked(end.mutex);
    ours = end.concerns_this_thread();
  }
  if (ours) stop_for_ever();
  if (end.otherwise != nullptr) end.otherwise();
  std::abort();
}

// Ends the process at once if a thread is inside this module (UnderWay).
// exit() calls leave_at_once() first, because it was registered last.
void leave_at_once(int status, void*) {
  if (under_way == 0) return;
  static_cast<void>(std::fflush(nullptr));
  ::_exit(status);
}

void begin_ending() {
  // Threads that still run keep references from their frames. nanobind must not report these references as leaks.
  if (nb::cast<int>(nb::module_::import_("threading").attr("active_count")()) > 1) nb::set_leak_warnings(false);
  const Unlocked unlocked;
  Ending& end = ending();
  std::unique_lock locked(end.mutex);
  if (end.begun) return;
  end.begun = true;
  end.by = std::this_thread::get_id();
  end.otherwise = std::set_terminate(stop_or_terminate);
  static_cast<void>(::on_exit(leave_at_once, nullptr));
  end.changed.wait(locked, [&] { return end.entering == 0; });
}

}  // namespace

void stop_for_ever() noexcept {
  for (;;) ::pause();
}

void take_gil(PyThreadState* state) noexcept {
  call_python([&] { PyEval_RestoreThread(state); });
}

bool holds_gil() noexcept { return !released && PyGILState_GetThisThreadState() != nullptr; }

Unlocked::Unlocked() : state_(PyEval_SaveThread()) { released = true; }

Unlocked::~Unlocked() {
  take_gil(state_);
  released = false;
}

Locked::Locked() {
  Ending& end = ending();
  {
    std::unique_lock locked(end.mutex);
    if (end.concerns_this_thread()) {
      locked.unlock();
      stop_for_ever();
    }
    ++end.entering;
  }
  state_ = PyGILState_Ensure();
  released = false;
  {
    const std::lock_guard locked(end.mutex);
    --end.entering;
  }
  end.changed.notify_all();
}

Locked::~Locked() {
  released = true;
  PyGILState_Release(state_);
}

UnderWay::UnderWay() { ++under_way; }
UnderWay::~UnderWay() { --under_way; }

void check_not_ending(const char* what) {
  Ending& end = ending();
  const std::lock_guard locked(end.mutex);
  if (end.begun)
    throw Error(ErrorCode::usage, std::string("[") + what + "] expected a running Python interpreter, got one that is shutting down");
}

void bind_interpreter(nb::module_&) {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(begin_ending));
  // A forked child has no other threads, so the counters of threads that are inside this module or about to take the GIL are set to 0.
  static const int once = ::pthread_atfork(nullptr, nullptr, [] {
    under_way = 0;
    new (&ending()) Ending();
  });
  static_cast<void>(once);
}

}  // namespace spillway::python
