#include "app/console/signals.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "trainer/node/stop.h"

namespace spillway::app {
namespace {

using trainer::StopRequest;

void give(const trainer::StopAnswer& answer) {
  if (const size_t count = answer.size()) [[maybe_unused]]
    const ssize_t told = write(STDERR_FILENO, answer.data(), count);
}

void handle(int signal, siginfo_t* info, void*) {
  const int error = errno;
  const bool handed_on = info != nullptr && info->si_code == SI_QUEUE && info->si_value.sival_int == SIGINT;
  const StopRequest request = trainer::request_stop(signal, handed_on ? SIGINT : signal);
  if (request == StopRequest::impatient) {
    give(trainer::impatient_stop_answer());
    _exit(130);
  }
  if (request == StopRequest::first) give(trainer::first_stop_answer());
  errno = error;
}

}  // namespace

void hand_signal_on(int process, int signal) {
  sigval value{};
  value.sival_int = signal;
  signal == SIGINT ? sigqueue(process, SIGTERM, value) : kill(process, signal);
}

void install_stop_handlers() {
  struct sigaction action {};
  action.sa_sigaction = handle;
  // interrupted system calls are resumed, because the stop request is looked at only between steps
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaction(signal, &action, nullptr);
}

}  // namespace spillway::app
