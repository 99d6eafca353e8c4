// spillway train --rehearse: what would fail in hour six fails in minute two. The program itself, with the flags given, takes three steps
// and saves; again it saves, is killed, and goes on; losses, norms and the checkpoint are compared, memory and times set beside the plan.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "app/commands/commands.h"
#include "app/node/own_program.h"
#include "app/node/signals.h"
#include "app/run/checkpoint.h"
#include "base/error.h"
#include "base/units.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kSteps = 3;
constexpr int kSaved = 75, kInterrupted = 130;

// Gone with the object.
struct Folder {
  explicit Folder(fs::path where) : path(std::move(where)) {
    std::error_code error;
    if (fs::exists(path, error)) throw Error(ErrorCode::usage, "[rehearse] expected no " + path.string() + ", which is there: remove it");
    fs::create_directories(path, error);
    if (error) throw Error(ErrorCode::usage, fmt::format("[rehearse] cannot make {}: {}", path.string(), error.message()));
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path path;
};

struct Interrupted {};

std::vector<Json> rows_of(const fs::path& run) {
  std::vector<Json> rows;
  std::istringstream lines(read_whole(run / "metrics.jsonl").value_or(""));
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    if (Json row = Json::parse(line, nullptr, false); row.is_object()) rows.push_back(std::move(row));
  }
  return rows;
}

class Rehearsal {
 public:
  Rehearsal(const TrainConfig& config, Console& console)
      : words_(config.rehearsal_words), console_(console), folder_((config.out.empty() ? "runs/rehearsal" : config.out) + ".rehearsal") {}

  void run() {
    take_steps();
    die_and_go_on();
    compare();
    report();
  }

 private:
  fs::path straight() const { return folder_.path / "straight"; }
  fs::path killed() const { return folder_.path / "killed"; }
  std::string said(const fs::path& run) const { return read_whole(run.string() + ".txt").value_or(""); }

  std::vector<std::string> arguments(const fs::path& out, const char* every) const {
    std::vector<std::string> all{"train"};
    all.insert(all.end(), words_.begin(), words_.end());
    all.insert(all.end(), {"--out", out.string(), "--checkpoint-every", every, "--keep", "2"});
    return all;
  }

  void phase(const std::string& what) { console_.passing("rehearsal: " + (phase_ = what)); }

  // Whatever it ended with instead of what it should, in its own last words.
  [[noreturn]] void failed(const fs::path& run, int status, const std::string& expected) const {
    std::string text = said(run), last;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) last = line;
    }
    const bool known = status >= static_cast<int>(ErrorCode::bug) && status <= static_cast<int>(ErrorCode::numbers);
    throw Error(known ? static_cast<ErrorCode>(status) : ErrorCode::io,
                fmt::format("[rehearse] {}: expected {}, got status {}: {}", phase_, expected, status, last));
  }

  // True: when() holds and it runs; false: it ended by itself.
  bool runs_until(OwnProcess& process, const std::function<bool()>& when) const {
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
      if (stop_requested()) throw Interrupted();
      const bool over = process.is_over();
      if (when()) return !over;
      if (over) return false;
    }
  }

  // Until so many steps are taken; then it is asked to save and leave.
  void run_to(size_t steps, const fs::path& run, const char* every) {
    OwnProcess process(arguments(run, every), run.string() + ".txt");
    const bool runs = runs_until(process, [&] { return rows_of(run).size() >= steps; });
    if (runs) {
      phase(phase_ + ", and a save");
      process.send(SIGTERM);
    }
    const int status = process.wait();
    if (status != kSaved && status != 0) failed(run, status, "it to save and leave");
    peak_bytes_ = std::max(peak_bytes_, process.peak_bytes());
  }

  void take_steps() {
    phase("three steps");
    run_to(kSteps, straight(), "100000");
    phase("the checkpoint");
    const std::vector<fs::path> saved = checkpoints(straight());
    if (saved.empty()) failed(straight(), 0, "a checkpoint");
    if (const std::vector<std::string> damage = damage_of_checkpoint(saved.back()); !damage.empty())
      throw Error(ErrorCode::data, "[rehearse] " + phase_ + " is not what was saved: " + damage.front());
  }

  void die_and_go_on() {
    phase("a save on the way, and kill -9");
    {
      OwnProcess process(arguments(killed(), "1"), killed().string() + ".txt");
      const bool runs = runs_until(process, [&] { return !checkpoints(killed()).empty(); });
      process.send(SIGKILL);
      const int status = process.wait();
      if (!runs && status != 0) failed(killed(), status, "a checkpoint while it trains");
    }
    phase("going on after it");
    const size_t before = rows_of(killed()).size();
    run_to(std::max(before + 1, kSteps), killed(), "1");
    const std::string text = said(killed());
    if (text.find("continues at step ") == std::string::npos && text.find("finished: ") == std::string::npos)
      failed(killed(), 0, "it to go on where it was killed");
  }

  void compare() {
    phase("comparing");
    const std::vector<Json> a = rows_of(straight()), b = rows_of(killed());
    if (a.empty() || b.empty()) throw Error(ErrorCode::numbers, "[rehearse] expected steps to compare, got none");
    for (size_t step = 0; step < std::min({a.size(), b.size(), kSteps}); ++step) {
      for (const char* key : {"loss", "grad_norm"}) {
        if (a[step].value(key, Json()) == b[step].value(key, Json())) continue;
        throw Error(ErrorCode::numbers, fmt::format("[rehearse] step {}: expected the same {} after a kill, got {} and {}", step + 1, key,
                                                    a[step].value(key, Json()).dump(), b[step].value(key, Json()).dump()));
      }
      ++compared_;
    }
  }

  void report() const {
    const Json row = rows_of(straight()).back();
    const std::string text = said(straight());
    const size_t at = text.find("saved ");
    const std::string save = at == text.npos ? "" : text.substr(text.find(": ", at) + 2, text.find('\n', at) - text.find(": ", at) - 2);
    const Json all = {{"steps_compared", compared_},
                      {"step_ms", row.value("step_ms", Json())},
                      {"predicted_ms", row.value("predicted_ms", Json())},
                      {"peak_bytes", row.value("peak_bytes", Json())},
                      {"process_peak_bytes", peak_bytes_},
                      {"save", save}};
    if (console_.json()) return console_.result(all.dump());
    const auto ms = [&](const char* key) { return format_duration(row.value(key, 0.0) / 1e3); };
    const Json peak = row.value("peak_bytes", Json::object());
    console_.result(fmt::format(
        "rehearsed: {} steps with the same bits after kill -9 as without\n  a step {} (predicted {}); a save: {}\n  peak memory: a process "
        "{}, "
        "device {}, host {}; on nvme {}",
        compared_, ms("step_ms"), ms("predicted_ms"), save, format_bytes(peak_bytes_), format_bytes(peak.value("device", i64{0})),
        format_bytes(peak.value("host", i64{0})), format_bytes(peak.value("nvme", i64{0}))));
  }

  const std::vector<std::string> words_;
  Console& console_;
  const Folder folder_;
  std::string phase_;
  size_t compared_ = 0;
  i64 peak_bytes_ = 0;
};

}  // namespace

int run_rehearsal(const TrainConfig& config, Console& console) try {
  install_stop_handlers();
  Rehearsal(config, console).run();
  console.end_progress();
  return 0;
} catch (const Interrupted&) {
  console.end_progress();
  console.log(fmt::format("rehearsal stopped by {}: nothing is left behind", stop_signal()));
  return kInterrupted;
}

}  // namespace spillway::app
