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
  const char *no = std::getenv("NO_COLOR"), *term = std::getenv("TERM");
  return (no == nullptr || *no == '\0') && (term == nullptr || std::string_view(term) != "dumb");
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond ulimit -f is an error like a full disk, not a death
  std::vector<std::string> args;
  for (int i = 1; i < argc; ++i) args.emplace_back(argv[i]);
  const bool colour = isatty(STDOUT_FILENO) == 1 && wants_colour();
  return spillway::app::run(args, {std::cout, std::cerr, isatty(STDERR_FILENO) == 1, colour});
}
