// Provides the whole program as a function call, for main() and for tests. run() parses the arguments, runs the
// command, catches every exception and returns the exit status: the code of an Error, 5 for an allocation that
// was refused, 1 for any other exception. An error is printed to `err` as one block, "spillway train: message".
#pragma once
#include <ostream>
#include <span>
#include <string>

#include "app/names/names.h"
#include "trainer/node/host.h"

namespace spillway::app {

/// Streams are the output streams of the program. `terminal` says that `err` is a terminal, `out_terminal` that `out` is one, and `colour`
/// that `out` is a terminal that shows colours. If `text` is set, it receives each answer as plain text while `out` receives the JSON that
/// --json asks for.
struct Streams {
  std::ostream& out;
  std::ostream& err;
  bool terminal = false, colour = false, out_terminal = false;
  std::ostream* text = nullptr;
};

/// Runs the command that `args` (without the program's own name) describe and returns the exit status.
int run(std::span<const std::string> args, const Streams& streams, const Host& host = {});
int run(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace spillway::app
