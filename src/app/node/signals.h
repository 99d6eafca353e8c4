// SIGINT, SIGTERM, SIGUSR1 and SIGUSR2 (what batch systems send before the end) become a flag that the trainer looks at between steps, and
// are answered at once where somebody listens. The first counts; a second SIGINT leaves at once with status 130. Only src/app touches
// signals. stop_requested() may be called from any thread.
#pragma once
#include <string>

namespace spillway::app {

/// Installs the handlers; once per process is enough, again is harmless.
void install_stop_handlers();
bool stop_requested();
/// "SIGTERM", or "" while none came. "SIGINT" of a rank whose starter got it and handed it on.
const char* stop_signal();
/// What is written to stderr when the first signal comes, and when the second SIGINT does; cut to 255 bytes. Empty: nothing.
void set_stop_answers(const std::string& first, const std::string& second);
/// Hands a signal on to a process we started: SIGINT comes as SIGTERM that says what it was, for a terminal's own is no second one.
void hand_signal_on(int process, int signal);
/// Forgets a signal that came (tests, and commands run one after another).
void clear_stop();

}  // namespace spillway::app
