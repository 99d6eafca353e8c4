#include "app/console/pager.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace spillway::app {
namespace {

constexpr int kNotFound = 127;  // the shell's exit status for a command that it cannot find

bool is_on_path(const std::string& name) {
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nobody sets any
  for (std::string rest = path ? path : ""; !rest.empty();) {
    const size_t end = rest.find(':');
    if (::access((rest.substr(0, end) + "/" + name).c_str(), X_OK) == 0) return true;
    rest = end == rest.npos ? "" : rest.substr(end + 1);
  }
  return false;
}

}  // namespace

bool show_in_pager(const std::string& text) {
  const char* wish = std::getenv("PAGER");  // NOLINT(concurrency-mt-unsafe): nobody sets any
  std::string pager = wish && *wish ? wish : is_on_path("less") ? "less" : "";
  if (pager.empty()) return false;
  if (pager == "less") pager += " -FRX";
  std::FILE* to = ::popen(pager.c_str(), "w");
  if (!to) return false;
  // SIGPIPE is ignored: it is raised if the user quits the pager before the end of the text
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  std::fwrite(text.data(), 1, text.size(), to);
  const int status = ::pclose(to);
  std::signal(SIGPIPE, before);
  return !(WIFEXITED(status) && WEXITSTATUS(status) == kNotFound);
}

}  // namespace spillway::app
