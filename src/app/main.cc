// The process around run(): arguments, terminals, exit status.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <vector>

#include "app/entry.h"

namespace {

// https://no-color.org, and terminals that know no colours.
bool wants_colour() {
  const char* no = std::getenv("NO_COLOR");
  return no == nullptr || *no == '\0';
}

// A line can be drawn anew, and coloured.
bool is_terminal(int descriptor) {
  const char* term = std::getenv("TERM");
  return isatty(descriptor) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond ulimit -f is an error like a full disk, not a death
  std::vector<std::string> args;
  for (int i = 1; i < argc; ++i) args.emplace_back(argv[i]);
  const bool out_terminal = is_terminal(STDOUT_FILENO);
  return spillway::app::run(args, {std::cout, std::cerr, is_terminal(STDERR_FILENO), out_terminal && wants_colour(), out_terminal});
}
