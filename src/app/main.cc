// Defines main(), which passes the arguments to run(), tells it which streams are terminals, and returns its exit status.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <vector>

#include "app/entry.h"

namespace {

// Returns whether the user wants colours. The environment variable NO_COLOR (https://no-color.org) switches them off.
bool wants_colour() {
  const char* no = std::getenv("NO_COLOR");
  return no == nullptr || *no == '\0';
}

// Returns whether `descriptor` is a terminal on which a line can be redrawn and coloured. A terminal that calls itself "dumb" is not.
bool is_terminal(int descriptor) {
  const char* term = std::getenv("TERM");
  return isatty(descriptor) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` then returns an error and does not kill the process
  std::vector<std::string> args;
  for (int i = 1; i < argc; ++i) args.emplace_back(argv[i]);
  const bool out_terminal = is_terminal(STDOUT_FILENO);
  return spillway::app::run(args, {std::cout, std::cerr, is_terminal(STDERR_FILENO), out_terminal && wants_colour(), out_terminal});
}
