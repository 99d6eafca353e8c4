// Turns SIGINT, SIGTERM, SIGUSR1 and SIGUSR2, which batch systems send before a job's end, into a flag that the trainer checks between
// steps. The first signal sets the flag, and prints the line of set_stop_answers() at once. A second SIGINT ends the program at once with
// status 130. Only src/app handles signals. stop_requested() may be called from any thread.
#pragma once
#include <string>

namespace spillway::app {

/// Installs the signal handlers. One call per process is enough; more calls do no harm.
void install_stop_handlers();
bool stop_requested();
/// Returns the name of the signal that came, such as "SIGTERM", or "" if none has. A SIGINT that was passed on by hand_signal_on() is
/// "SIGINT".
const char* stop_signal();
/// Sets the lines that are written to stderr when the first signal comes, and when the second SIGINT comes. Each is cut to 255 bytes. If a
/// line is empty, nothing is written.
void set_stop_answers(const std::string& first, const std::string& second);
/// Passes a signal on to a process that we started. A SIGINT is sent as a SIGTERM that carries its original number. Otherwise it would
/// count as a second SIGINT in a process that has already received one from the terminal.
void hand_signal_on(int process, int signal);
/// Forgets a signal that came. For tests, and for commands that run one after another in one process.
void clear_stop();

}  // namespace spillway::app
