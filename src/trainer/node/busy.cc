#include "trainer/node/busy.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "trainer/node/cores.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

// Returns the cores on which this process may run.
std::vector<int> allowed_cores(const Host& host) {
  std::istringstream lines(host.read("/proc/self/status").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Cpus_allowed_list:")) return parse_core_list(line.substr(line.find(':') + 1));
  }
  return {};
}

double tick_s() { return 1 / static_cast<double>(::sysconf(_SC_CLK_TCK)); }

// Returns the seconds of USER, NICE and STEAL in a line "cpu3 USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …" of /proc/stat. Stolen time
// is what another virtual machine used.
double used_s(std::istream& words) {
  double ticks = 0;
  for (int column = 1; column <= 8; ++column) {
    double value = 0;
    if (words >> value && (column <= 2 || column == 8)) ticks += value;
  }
  return ticks * tick_s();
}

// Returns the user seconds of this process: the 14th field of /proc/self/stat, counted from the one after the program's name, which is the
// third. The name is in parentheses and may hold anything.
double own_s(const Host& host) {
  const std::string text = host.read("/proc/self/stat").value_or("");
  std::istringstream words(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string word;
  for (int field = 3; field < 14; ++field) words >> word;
  double ticks = 0;
  return words >> ticks ? ticks * tick_s() : 0;
}

double cores_s(const Host& host) {
  const std::vector<int> allowed = allowed_cores(host);
  std::istringstream lines(host.read("/proc/stat").value_or(""));
  double seconds = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    int core = 0;
    if (!(words >> name) || !name.starts_with("cpu")) break;
    const auto parsed = std::from_chars(name.data() + 3, name.data() + name.size(), core);
    if (parsed.ec == std::errc() && std::ranges::count(allowed, core) > 0) seconds += used_s(words);
  }
  return seconds;
}

}  // namespace

CpuSample cpu_sample(const Host& host) {
  CpuSample sample;
  std::error_code error;
  for (fs::directory_iterator at(host.root / "proc/self/task", error), end; !error && at != end; at.increment(error)) {
    const std::string id = at->path().filename().string();
    std::istringstream words(host.read("/proc/self/task/" + id + "/schedstat").value_or(""));
    double ran_ns = 0, waited_ns = 0;
    if (words >> ran_ns >> waited_ns) sample.threads[std::atoi(id.c_str())] = {ran_ns / 1e9, waited_ns / 1e9};
  }
  if (sample.threads.empty()) return sample;
  sample.own_s = own_s(host);
  sample.cores_s = cores_s(host);
  return sample;
}

Contention between(const CpuSample& before, const CpuSample& after) {
  double ran_s = 0, waited_s = 0;
  for (const auto& [id, now] : after.threads) {  // a thread that has ended meanwhile is unknown, and one that has begun counts from 0
    const auto then = before.threads.find(id);
    const ThreadTime start = then == before.threads.end() ? ThreadTime{} : then->second;
    ran_s += now.ran_s - start.ran_s, waited_s += now.waited_s - start.waited_s;
  }
  const double ready_s = ran_s + waited_s;
  if (!(ready_s > 0)) return {};
  const double others_s = std::max(0.0, (after.cores_s - before.cores_s) - (after.own_s - before.own_s));
  return {.obtained = ran_s / ready_s, .others = others_s / ready_s, .others_s = others_s};
}

std::string Contention::text() const {
  return fmt::format("its threads got {:.0f} % of the processor time that they asked for, because other programs ran", 100 * obtained);
}

}  // namespace spillway::trainer
