// SIGINT, SIGTERM, SIGUSR1 and SIGUSR2 (what batch systems send before the end) become a flag that the trainer looks at between steps. A
// second SIGINT leaves at once with status 130. Only src/app touches signals. stop_requested() may be called from any thread.
#pragma once

namespace spillway::app {

/// Installs the handlers; once per process is enough, again is harmless.
void install_stop_handlers();
bool stop_requested();
/// "SIGTERM", or "" while none came.
const char* stop_signal();
/// Forgets a signal that came (tests, and commands run one after another).
void clear_stop();

}  // namespace spillway::app
