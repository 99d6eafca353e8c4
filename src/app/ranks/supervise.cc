#include "app/ranks/supervise.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "app/console/signals.h"
#include "base/units.h"
#include "parallel/sockets/secret.h"
#include "trainer/node/cgroup.h"
#include "trainer/node/log_line.h"
#include "trainer/node/own_program.h"
#include "trainer/ranks/peers.h"
#include "trainer/ranks/rank_report.h"

namespace spillway::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStoppedAfterSaving = 75;

Clock::duration seconds(double s) { return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s)); }

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("signal {} (SIG{})", signal, name);
}

// As long as a BlockedSignals object lives, it blocks the signals that the supervisor receives with wait() instead of a handler.
class BlockedSignals {
 public:
  BlockedSignals() {
    signal(SIGCHLD, SIG_DFL);  // SIGCHLD may be ignored by inheritance, and then no child could be waited for
    sigemptyset(&set_);
    for (const int one : {SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaddset(&set_, one);
    sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~BlockedSignals() { restore(); }
  void restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  /// Waits for one of the blocked signals for at most `time` and returns its number. Returns 0 if none arrived.
  int wait(Clock::duration time) const {
    const auto ns = std::max<i64>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count(), 0);
    const timespec limit{ns / 1'000'000'000, ns % 1'000'000'000};
    return std::max(sigtimedwait(&set_, nullptr, &limit), 0);
  }

 private:
  sigset_t set_, before_;
};

class Supervisor {
 public:
  Supervisor(const Supervision& supervision, Console& console, const Host& host)
      : given_(supervision), console_(console), host_(host), reports_(given_.ranks), oom_kills_(cgroup_oom_kills(host)) {}
  ~Supervisor() {
    kill_all();
    for (const Rank& one : ranks_) {
      if (!one.ended) waitpid(one.process, nullptr, 0);
    }
  }

  int run() {
    start_all();
    while (std::ranges::any_of(ranks_, [](const Rank& one) { return !one.ended; })) {
      hand_on(signals_.wait(time_left()));
      look_at_children();
      look_at_time();
    }
    return verdict();
  }

 private:
  struct Rank {
    pid_t process = -1;
    bool ended = false, killed_here = false;
    int status = 0;     // exit status of the rank, as waitpid() returns it
    int order = 0;      // 1 for the rank that ended first, 2 for the next, ...; 0 while the rank runs
    bool hung = false;  // true if the rank was stopped (SIGSTOP) and did not continue in time
    std::optional<Clock::time_point> stopped_since;

    bool by_signal() const { return ended && WIFSIGNALED(status); }
    int code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : 0; }
    bool is_dead() const { return hung || (by_signal() && !killed_here); }
    bool is_well() const { return ended && !by_signal() && (code() == 0 || code() == kStoppedAfterSaving); }
  };

  void start_all() {
    token_ = parallel::random_bits();
    meeting_ = "unix:spillway-" + parallel::random_bits();
    for (int r = 0; r < given_.ranks; ++r) {
      Rank& one = ranks_.emplace_back();
      one.process = fork();
      if (one.process == 0) become(r);
      if (one.process > 0) continue;
      ranks_.pop_back();
      throw Error(ErrorCode::io, fmt::format("[ranks] expected to start {} processes, got \"{}\" for process number {}: raise the limit of "
                                             "processes (ulimit -u), or start fewer ranks",
                                             given_.ranks, std::strerror(errno), r + 1));
    }
  }

  // Runs in the child process and executes this program as rank `rank`. The child is killed if the supervisor dies.
  [[noreturn]] void become(int rank) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor_) _exit(1);  // ends the child if the supervisor died before prctl() took effect
    signals_.restore();
    const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
    for (const char* name : {"SPILLWAY_RANKS", "SPILLWAY_LOCAL_RANKS"}) set(name, std::to_string(given_.ranks));
    for (const char* name : {"SPILLWAY_RANK", "SPILLWAY_LOCAL_RANK"}) set(name, std::to_string(rank));
    set("SPILLWAY_MEETING", meeting_);
    set("SPILLWAY_TOKEN", token_);
    set("SPILLWAY_REPORT", reports_.variable());
    fcntl(reports_.descriptor(), F_SETFD, 0);
    if (rank > 0) dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    const std::string path = own_program();
    std::vector<std::string> words{path};
    words.insert(words.end(), given_.args.begin(), given_.args.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    execv(path.c_str(), pointers.data());
    reports_.set_failure(rank, {ErrorCode::io, fmt::format("[ranks] expected to start {}, got \"{}\"", path, std::strerror(errno))});
    _exit(static_cast<int>(ErrorCode::io));
  }

  // Forwards a signal to the ranks. A terminal's Ctrl-C reaches the ranks directly as well. hand_signal_on() therefore forwards SIGINT as
  // another signal, so that no rank takes it for a second Ctrl-C.
  void hand_on(int signal) {
    if (signal == 0 || signal == SIGCHLD) return;
    if (signal == SIGINT && handed_on_ == SIGINT) leave();
    handed_on_ = signal;
    if (leaves_at_once_) return;
    for (const Rank& one : ranks_) {
      if (!one.ended) hand_signal_on(one.process, signal);
    }
  }

  void look_at_children() {
    for (Rank& one : ranks_) {
      int status = 0;
      while (!one.ended && waitpid(one.process, &status, WNOHANG | WUNTRACED | WCONTINUED) == one.process) {
        if (WIFSTOPPED(status)) {
          stopped(one, WSTOPSIG(status));
        } else if (WIFCONTINUED(status)) {
          one.stopped_since.reset();
        } else {
          ended(one, status);
        }
      }
    }
  }

  // Warns that a rank was stopped. Only SIGSTOP counts, because a terminal's Ctrl-Z (SIGTSTP) stops the supervisor and all ranks alike.
  void stopped(Rank& one, int signal) {
    if (signal != SIGSTOP || one.stopped_since) return;
    one.stopped_since = Clock::now();
    console_.warn(fmt::format("{} was stopped ({}); all ranks end unless it continues within {}: run kill -CONT {}", name(one), doing(one),
                              format_duration(given_.timeout_s), one.process));
  }

  void ended(Rank& one, int status) {
    one.ended = true, one.status = status, one.order = ++ended_;
    one.stopped_since.reset();
    if (one.code() == 128 + SIGINT) leave();  // a rank ended by a second Ctrl-C: two quick presses may reach the supervisor as one signal
    if (one.code() == static_cast<int>(ErrorCode::peer)) blame_who_is_stopped();
    if (!one.is_well() && !kill_at_) kill_at_ = Clock::now() + seconds(given_.grace_s);
  }

  // Called when a rank timed out while it waited for another rank. The wait may have begun before the
  // supervisor saw the other rank stop, so every rank that is stopped at this moment counts as hung.
  void blame_who_is_stopped() {
    for (Rank& one : ranks_) one.hung |= one.stopped_since.has_value();
  }

  Clock::duration time_left() const {
    if (kill_at_) return std::min(*kill_at_ - Clock::now(), seconds(0.05));
    Clock::time_point next = Clock::now() + std::chrono::hours(1);
    for (const Rank& one : ranks_) {
      if (one.stopped_since) next = std::min(next, *one.stopped_since + seconds(given_.timeout_s));
    }
    return next - Clock::now();
  }

  void look_at_time() {
    const Clock::time_point now = Clock::now();
    bool over = kill_at_ && now >= *kill_at_;
    for (Rank& one : ranks_) {
      if (one.ended || !one.stopped_since || (now < *one.stopped_since + seconds(given_.timeout_s) && !over)) continue;
      one.hung = over = true;
    }
    if (over) kill_all();
    if (kill_at_) kill_those_who_wait();
  }

  // Handles the second Ctrl-C: kills all ranks. On a terminal the ranks receive the Ctrl-C too and
  // would print the message themselves, but they may die before they do, so the supervisor prints it.
  void leave() {
    if (std::exchange(leaves_at_once_, true)) return;
    kill_all();
    const std::string text = "stopped without saving; what was saved before is kept";
    console_.log((console_.terminal() ? "\n" : "") + text);  // the line feed puts the message below the progress line of a rank
    write_down(text);
  }

  // Kills the ranks that still wait in the rendezvous. At least one other rank has ended already and will never arrive there.
  void kill_those_who_wait() {
    for (Rank& one : ranks_) {
      if (one.ended || reports_.phase(number(one)) != RankPhase::meeting) continue;
      one.killed_here = true;
      kill(one.process, SIGKILL);
    }
  }

  void kill_all() {
    for (Rank& one : ranks_) {
      if (one.ended) continue;
      one.killed_here = true;
      kill(one.process, SIGKILL);
    }
  }

  int verdict() const {
    if (leaves_at_once_) return 128 + SIGINT;
    const Rank* first = nullptr;  // the first rank that failed on its own, not because another rank had failed
    for (const Rank& one : ranks_) {
      const bool itself = one.is_dead() || (!one.is_well() && !one.by_signal() && one.code() != static_cast<int>(ErrorCode::peer));
      if (itself && (first == nullptr || (one.hung && !first->hung) || one.order < first->order)) first = &one;
    }
    if (first != nullptr && first->by_signal() && handed_on_ != 0 && is_handed_on(WTERMSIG(first->status)))
      return 128 + handed_on_;  // the forwarded signal killed a rank that had not yet installed its signal handlers
    if (first != nullptr && first->is_dead()) {
      const std::string certificate = death(*first);
      write_down("error: " + certificate);
      throw Error(ErrorCode::peer, certificate);
    }
    if (first != nullptr) throw_said(first->code());
    if (std::ranges::all_of(ranks_, [](const Rank& one) { return one.is_well(); }))
      return std::ranges::max(ranks_, {}, [](const Rank& one) { return one.code(); }).code();
    throw_said(static_cast<int>(ErrorCode::peer));
  }

  // Appends a line to the run's log, because a rank that died cannot do so itself.
  void write_down(const std::string& text) const {
    const std::string file = reports_.log_file(0);
    if (!file.empty()) std::ofstream(file, std::ios::app) << log_line(text);
  }

  bool is_handed_on(int signal) const { return signal == handed_on_ || signal == SIGTERM; }

  // Throws the error of the lowest rank that ended with the exit status `code` and reported an error.
  [[noreturn]] void throw_said(int code) const {
    for (const Rank& one : ranks_) {
      const Failure said = reports_.failure(number(one));
      if (one.code() == code && !said.text.empty()) throw Error(static_cast<ErrorCode>(code), said.text);
    }
    const auto silent = std::ranges::find(ranks_, code, [](const Rank& one) { return one.code(); });
    throw Error(static_cast<ErrorCode>(code),
                fmt::format("[ranks] {} ended with exit status {} and without a message ({})",
                            silent == ranks_.end() ? "a rank" : name(*silent), code, silent == ranks_.end() ? "" : doing(*silent)));
  }

  int number(const Rank& one) const { return static_cast<int>(&one - ranks_.data()); }
  std::string name(const Rank& one) const {
    return fmt::format("rank {} on host {} (process {})", number(one), Peers::host_name(), one.process);
  }
  std::string doing(const Rank& one) const {
    const i64 step = reports_.step(number(one));
    return to_string(reports_.phase(number(one))) + (step > 0 ? fmt::format(", its last step was {}", step) : std::string());
  }

  std::string death(const Rank& one) const {
    const std::string what =
        one.hung ? fmt::format("was stopped (SIGSTOP) and did not continue within --timeout {}", format_duration(given_.timeout_s))
                 : "died: killed by " + signal_name(WTERMSIG(one.status)) + cause(WTERMSIG(one.status));
    const bool resumes = reports_.phase(number(one)) == RankPhase::training;
    return fmt::format("[ranks] {} {}; it was {}; all ranks ended{}", name(one), what, doing(one),
                       resumes ? ". What was saved is kept: run the same command again to continue" : "");
  }

  std::string cause(int signal) const {
    if (signal != SIGKILL) return "";
    if (cgroup_oom_kills(host_) == oom_kills_) return ", by a user or by the kernel because memory ran out (see dmesg)";
    const auto memory = cgroup_memory(host_);
    return "; the memory control group counted an out-of-memory kill" +
           (memory ? fmt::format(" (limit {}, now in use {})", format_bytes(memory->limit_bytes), format_bytes(memory->use_bytes))
                   : std::string()) +
           ": lower --device-memory and --host-memory";
  }

  const Supervision& given_;
  Console& console_;
  const Host& host_;
  const pid_t supervisor_ = getpid();
  const BlockedSignals signals_;
  const RankReports reports_;
  const i64 oom_kills_;
  std::string token_, meeting_;  // token_: secret of the ranks; meeting_: rendezvous address, which anyone on the node can see
  std::vector<Rank> ranks_;
  std::optional<Clock::time_point> kill_at_;
  int ended_ = 0, handed_on_ = 0;
  bool leaves_at_once_ = false;
};

}  // namespace

int supervise(const Supervision& supervision, Console& console, const Host& host) { return Supervisor(supervision, console, host).run(); }

}  // namespace spillway::app
