// Turns SIGINT, SIGTERM, SIGUSR1 and SIGUSR2 into a flag that the trainer checks between steps; batch systems send these signals
// before a job's end. The first signal sets the flag and at once prints the first line of set_stop_answers(). A second SIGINT
// ends the program at once with status 130. Only src/app handles signals. stop_requested() may be called from any thread.
#pragma once
#include <string>

namespace spillway::app {

/// Installs the signal handlers. Further calls in the same process do no harm.
void install_stop_handlers();
bool stop_requested();
/// Returns the name of the signal that was received, such as "SIGTERM", or "" if there
/// was none. A SIGINT that arrived through hand_signal_on() is reported as "SIGINT".
const char* stop_signal();
/// Sets the lines that are written to stderr: `first` when the first signal arrives, `second`
/// when the second SIGINT arrives. Each is cut to 255 bytes. An empty line is not written.
void set_stop_answers(const std::string& first, const std::string& second);
/// Passes a signal on to a child process. A SIGINT is sent as a SIGTERM that carries the number of SIGINT. If it
/// were sent as a SIGINT, a child that has already received one from the terminal would count it as the second.
void hand_signal_on(int process, int signal);
/// Forgets a signal that was received. Tests call this, and so do commands that run one after another in one process.
void clear_stop();

}  // namespace spillway::app
