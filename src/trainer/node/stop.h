// Remembers that this process was asked to stop. Signal handlers (app/console/signals.h) record the request, and the training loop checks
// for it between steps. A program that uses the library as such asks through its callbacks instead. Thread-safe.
#pragma once
#include <array>
#include <atomic>
#include <string>

namespace spillway::trainer {

enum class StopRequest {
  first,     // no stop was requested before
  repeated,  // a request was made before, so the run is stopping already
  impatient  // a second SIGINT: the user does not want to wait for the checkpoint to be saved
};
/// Asks the run to stop, because `signal` arrived. stop_signal() will name `original`: the signal that a parent process received and
/// passed on as `signal`, or
/// `signal` itself. A signal handler may call it.
StopRequest request_stop(int signal, int original);
bool stop_requested();
/// Returns the name of the signal that requested the stop first, such as "SIGTERM", or "" if there was no request.
const char* stop_signal();
/// Forgets the request. For tests, and for commands that run one after another in one process.
void clear_stop();

/// Sets the lines that the signal handler writes at once, for the first request and for an impatient one. The training loop keeps them up
/// to date. Each is cut to 255 bytes; an empty line means that nothing is written.
void set_stop_answers(const std::string& first, const std::string& impatient);

/// A line that a signal handler may read: it is complete before its size becomes non-zero.
class StopAnswer {
 public:
  void set(const std::string& line);
  const char* data() const { return text_.data(); }
  size_t size() const { return bytes_; }  // size of the line in bytes, including the newline at its end

 private:
  std::array<char, 256> text_{};
  std::atomic<size_t> bytes_{0};
};
const StopAnswer& first_stop_answer();
const StopAnswer& impatient_stop_answer();

}  // namespace spillway::trainer
