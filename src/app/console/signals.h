// Turns SIGINT, SIGTERM, SIGUSR1 and SIGUSR2, which batch systems send before a job's end, into a request to stop (trainer/node/stop.h).
// The first signal's answer is written to stderr at once. A second SIGINT ends the program at once with status 130.
#pragma once

namespace spillway::app {

/// Installs the signal handlers. One call per process is enough; more calls do no harm.
void install_stop_handlers();
/// Passes a signal on to a process that we started. A SIGINT is sent as a SIGTERM that carries its original number. Otherwise it would
/// count as a second SIGINT in a process that has already received one from the terminal. The receiver takes it for a SIGINT.
void hand_signal_on(int process, int signal);

}  // namespace spillway::app
