#include "app/node/signals.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

namespace spillway::app {
namespace {

// A signal handler may access these atomics, because they are lock-free.
std::atomic<int> stop_{0}, interrupts_{0};
static_assert(std::atomic<int>::is_always_lock_free);

// Answer is a text that a signal handler may write. Its length becomes non-zero only after the text is complete, and only set() changes it.
struct Answer {
  std::array<char, 256> text{};
  std::atomic<size_t> bytes{0};

  void set(const std::string& line) {
    bytes = 0;
    const size_t count = std::min(line.size(), text.size() - 1);
    std::copy_n(line.begin(), count, text.begin());
    if (count > 0) text[count] = '\n';
    bytes = count > 0 ? count + 1 : 0;
  }
  void give() const {
    if (const size_t count = bytes) [[maybe_unused]]
      const ssize_t told = write(STDERR_FILENO, text.data(), count);
  }
};
Answer first_answer_, second_answer_;

void handle(int signal, siginfo_t* info, void*) {
  const int error = errno;
  // The second Ctrl-C ends the process at once, because a user who presses it twice does not want to wait for the checkpoint.
  if (signal == SIGINT && ++interrupts_ == 2) {
    second_answer_.give();
    _exit(130);
  }
  const bool handed_on = info != nullptr && info->si_code == SI_QUEUE && info->si_value.sival_int == SIGINT;
  int none = 0;
  if (stop_.compare_exchange_strong(none, handed_on ? SIGINT : signal)) first_answer_.give();
  errno = error;
}

}  // namespace

void set_stop_answers(const std::string& first, const std::string& second) {
  first_answer_.set(first);
  second_answer_.set(second);
}

void hand_signal_on(int process, int signal) {
  sigval value{};
  value.sival_int = signal;
  signal == SIGINT ? sigqueue(process, SIGTERM, value) : kill(process, signal);
}

void install_stop_handlers() {
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_RESTART | SA_SIGINFO;  // interrupted system calls continue, because the stop flag is checked only between steps
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

void clear_stop() { stop_ = interrupts_ = 0; }

}  // namespace spillway::app
