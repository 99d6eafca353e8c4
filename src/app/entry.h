// The program without its process: what main() calls, and the tests. Parses, dispatches, catches every exception and returns the exit
// status: an Error's code, 5 for refused memory, 1 for anything else. One clear block "spillway train: message" goes to `err`.
#pragma once
#include <ostream>
#include <span>
#include <string>

#include "app/node/host.h"

namespace spillway::app {

/// `terminal`: `err` is a terminal, `out_terminal`: `out` is. `colour`: `out` is one that takes colours. `text` gets what an answer would
/// be without --json where `out` gets it with that.
struct Streams {
  std::ostream& out;
  std::ostream& err;
  bool terminal = false, colour = false, out_terminal = false;
  std::ostream* text = nullptr;
};

/// `args` without the program's own name.
int run(std::span<const std::string> args, const Streams& streams, const Host& host = {});
int run(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace spillway::app
