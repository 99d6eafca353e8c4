#include "app/node/signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

namespace spillway::app {
namespace {

// Lock-free, so a handler may touch it.
std::atomic<int> stop_{0};
static_assert(std::atomic<int>::is_always_lock_free);

void handle(int signal) {
  // Whoever presses Ctrl-C twice does not want to wait for the save.
  if (signal == SIGINT && stop_.load() == SIGINT) _exit(130);
  stop_.store(signal);
}

}  // namespace

void install_stop_handlers() {
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;  // system calls under way go on: the flag is looked at between steps
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaction(signal, &action, nullptr);
}

bool stop_requested() { return stop_.load() != 0; }

const char* stop_signal() {
  switch (stop_.load()) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    default:
      return "";
  }
}

void clear_stop() { stop_.store(0); }

}  // namespace spillway::app
