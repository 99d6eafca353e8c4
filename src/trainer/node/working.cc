#include "trainer/node/working.h"

#include <signal.h>

#include "base/thread.h"
#include "base/units.h"

namespace spillway::trainer {

Working::Working(Messages& messages, std::string what, std::chrono::milliseconds pause)
    : Working(
          messages, [what = std::move(what)] { return what; }, pause) {}

Working::Working(Messages& messages, std::function<std::string()> what, std::chrono::milliseconds pause)
    : messages_(messages), what_(std::move(what)), pause_(pause), thread_(start_thread([this] { run(); })) {}

Working::~Working() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Working::run() {
  sigset_t all;  // all signals are blocked in this thread, so that the threads that do the work receive them
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, pause_, [&] { return over_; })) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    messages_.progress(what_() + ": " + format_duration(seconds) + " so far");
  }
}

}  // namespace spillway::trainer
