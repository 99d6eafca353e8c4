#include "trainer/node/stop.h"

#include <algorithm>
#include <csignal>

namespace spillway::trainer {
namespace {

// These atomics are lock-free, so a signal handler may access them.
std::atomic<int> stop_{0}, interrupts_{0};
static_assert(std::atomic<int>::is_always_lock_free);

StopAnswer first_, impatient_;

}  // namespace

StopRequest request_stop(int signal, int original) {
  if (signal == SIGINT && ++interrupts_ == 2) return StopRequest::impatient;
  int none = 0;
  return stop_.compare_exchange_strong(none, original) ? StopRequest::first : StopRequest::repeated;
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

void StopAnswer::set(const std::string& line) {
  bytes_ = 0;
  const size_t count = std::min(line.size(), text_.size() - 1);
  std::copy_n(line.begin(), count, text_.begin());
  if (count > 0) text_[count] = '\n';
  bytes_ = count > 0 ? count + 1 : 0;
}

void set_stop_answers(const std::string& first, const std::string& impatient) {
  first_.set(first);
  impatient_.set(impatient);
}

const StopAnswer& first_stop_answer() { return first_; }
const StopAnswer& impatient_stop_answer() { return impatient_; }

}  // namespace spillway::trainer
