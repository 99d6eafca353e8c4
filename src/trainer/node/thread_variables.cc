#include "trainer/node/thread_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include "trainer/node/cpu_lists.h"
#include "trainer/node/launcher.h"

namespace spillway::trainer {
namespace {

constexpr size_t kLongestShown = 60;
constexpr int kMostOmpThreads = 4096;  // as of --threads
constexpr int kMostSlurmCpus = 1 << 20;

// Returns a text in lower case and without spaces. OpenMP allows both.
std::string plain(const std::string& text) {
  std::string all;
  for (const char c : text) {
    if (!std::isspace(static_cast<unsigned char>(c))) all += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return all;
}

std::string shown(const std::string& value) {
  std::string text = value.substr(0, kLongestShown);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return value.size() > kLongestShown ? text + "…" : text;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

std::optional<int> whole(const std::string& text, int most) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return read.ec == std::errc() && read.ptr == end && value >= 1 && value <= most ? std::optional(value) : std::nullopt;
}

// Reads the variables one after the other into `all`.
class Reading {
 public:
  Reading(const Host& host, const std::vector<int>& allowed) : host_(host), allowed_(allowed) {}

  ThreadVariables read() {
    take_counts();
    take("OMP_PROC_BIND", [this](const std::string& value) { take_proc_bind(value); });
    take("OMP_PLACES", [this](const std::string& value) { take_places(value); });
    take("GOMP_CPU_AFFINITY", [this](const std::string& value) {
      take_list(parse_cpu_affinity(value), "CPUs such as \"0-3\" or \"0 2 4\", with numbers below 1024");
    });
    take("KMP_AFFINITY", [this](const std::string& value) { take_kmp(value); });
    take("SLURM_CPU_BIND", [](const std::string&) {});
    return std::move(all_);
  }

 private:
  template <class Use>
  void take(const char* name, const Use& use) {
    const auto value = host_.env(name);
    if (!value) return;
    all_.set.push_back({name, shown(*value), "", false});
    use(*value);
  }
  ThreadVariable& last() { return all_.set.back(); }
  void leave(const std::string& why) { last().unused = why; }
  void refuse(const std::string& expected) {
    leave("expected " + expected);
    last().wrong = true;
  }

  void take_counts() {
    take("OMP_NUM_THREADS", [this](const std::string& value) {
      const std::string text = plain(value);
      all_.threads = whole(text.substr(0, text.find(',')), kMostOmpThreads);
      if (!all_.threads) return refuse(fmt::format("a whole number from 1 to {}, or a list that begins with one", kMostOmpThreads));
      const Launcher launcher = detect_launcher(host_);
      if (launcher.name != "torchrun" || launcher.local_ranks == 1 || text != "1") return;
      all_.threads.reset();
      leave("torchrun sets 1 unless its user sets another value, and the ranks divide the cores; --threads 1 gives a rank one thread");
    });
    take("SLURM_CPUS_PER_TASK", [this](const std::string& value) {
      all_.slurm_cpus = whole(plain(value), kMostSlurmCpus);
      if (!all_.slurm_cpus) refuse("a whole number of at least 1");
    });
  }

  void take_proc_bind(const std::string& value) {
    const std::string text = plain(value), first = text.substr(0, text.find(','));
    all_.unbound = first == "false";
    if (all_.unbound) return decide();
    for (const char* known : {"true", "close", "spread", "primary", "master"}) {
      if (first == known) return leave(kNoPlaceOfItsOwn);
    }
    refuse("false, true, close, spread or primary");
  }

  void take_places(const std::string& value) {
    const std::string text = plain(value), name = text.substr(0, text.find('('));
    constexpr const char* kExpected = "a list of CPUs such as {0:4} or {0,1},{4,5}, or threads, cores, sockets or threads(4)";
    const std::vector<std::string> names = {"threads", "cores", "sockets", "ll_caches", "numa_domains"};
    if (std::ranges::count(names, name) == 0) return take_list(parse_places(text), kExpected);
    const bool counted = name != text;
    const auto count = counted && text.ends_with(')') ? whole(text.substr(name.size() + 1, text.size() - name.size() - 2), kMostCpus)
                                                      : std::optional(kMostCpus);
    if (!count || (counted && !text.ends_with(')'))) return refuse(kExpected);
    if (counted && name != "threads")
      return leave("a count is used with threads only; a list of CPUs such as {0:4}, or threads(4), says which CPUs to use");
    CpuSet first;
    for (size_t i = 0; i < allowed_.size() && i < static_cast<size_t>(*count); ++i) first.set(static_cast<size_t>(allowed_[i]));
    take_list(first, kExpected);
  }

  void take_kmp(const std::string& value) {
    const std::string text = plain(value);
    constexpr std::string_view kList = "proclist=[";
    const size_t list = text.find(kList), end = list == std::string::npos ? list : text.find(']', list);
    const std::vector<std::string> words = words_of(text.substr(0, list));
    const auto has = [&](const char* word) { return std::ranges::count(words, word) > 0; };
    constexpr const char* kExpected = "none, disabled, compact, scatter, balanced, or explicit with a list such as proclist=[0-3]";
    if (has("none") || has("disabled")) {
      if (!decided_.empty()) return leave(decided_ + " is set");
      all_.unbound = true;
    } else if (end != std::string::npos) {
      std::string cpus = text.substr(list + kList.size(), end - list - kList.size());
      std::erase_if(cpus, [](char c) { return c == '{' || c == '}'; });
      take_list(parse_cpu_affinity(cpus), kExpected);
    } else if (has("compact") || has("scatter") || has("balanced")) {
      leave(kNoPlaceOfItsOwn);
    } else {
      refuse(kExpected);
    }
  }

  // Uses the list of the last variable, unless an earlier variable has decided already.
  void take_list(const std::optional<CpuSet>& list, const std::string& expected) {
    if (!list) return refuse(expected);
    if (!decided_.empty()) return leave(decided_ + " is set");
    std::vector<int> cpus;
    for (const int cpu : allowed_) {
      if (list->test(static_cast<size_t>(cpu))) cpus.push_back(cpu);
    }
    if (cpus.empty()) return leave("this process may run on none of these CPUs");
    all_.cpus = std::move(cpus);
    decide();
  }

  // From now on the last variable decides where threads run.
  void decide() { decided_ = last().name + "=" + last().value; }

  static constexpr const char* kNoPlaceOfItsOwn = "a thread runs on any of its rank's CPUs; --bind says which these are";
  const Host& host_;
  const std::vector<int>& allowed_;
  ThreadVariables all_;
  std::string decided_;
};

}  // namespace

ThreadVariables thread_variables(const Host& host, const std::vector<int>& allowed) { return Reading(host, allowed).read(); }

}  // namespace spillway::trainer
