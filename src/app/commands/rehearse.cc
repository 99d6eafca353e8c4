// Implements `spillway train --rehearse`, which shows within minutes what would fail after hours. It starts the program
// itself with the given flags. One run trains and saves, is killed, and resumes to its end, with validation, samples and
// histograms if the run has them. A second run takes as many steps without a kill, and saves when asked to stop. A
// rehearsal takes at least three steps: the first two are a warm-up, so only the third one's time is typical of the run.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/commands/commands.h"
#include "app/commands/rehearse_folder.h"
#include "app/commands/rehearse_report.h"
#include "app/console/signals.h"
#include "base/error.h"
#include "base/units.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/node/stop.h"
#include "trainer/node/working.h"
#include "trainer/settings/run_settings.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr i64 kLeastSteps = 3;
constexpr i64 kSampledTokens = 128;      // tokens per sample, as in the trainer
constexpr double kLongestSample_s = 60;  // longer samples are not rehearsed, which the report mentions
constexpr int kSaved = 75;

i64 bytes_of(const fs::path& folder) {
  i64 bytes = 0;
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(folder, none))
    bytes += entry.is_regular_file() ? static_cast<i64>(entry.file_size()) : 0;
  return bytes;
}

class Rehearsal {
 public:
  Rehearsal(const TrainConfig& config, Console& console, const fs::path& folder)
      : config_(config), console_(console), folder_(folder), kept_(static_cast<i64>(checkpoints(config.out).size())) {}

  RehearsalFigures run() {
    be_killed();
    go_on();
    take_steps();
    phase("comparing");
    figures_.steps = compare_numbers(rows_of(straight()), rows_of(killed()));
    working_.reset();
    return figures_;
  }

 private:
  fs::path straight() const { return folder_ / kStraightRun; }
  fs::path killed() const { return folder_ / kKilledRun; }
  i64 steps(const fs::path& run) const { return static_cast<i64>(rows_of(run).size()); }

  // Returns the flags of a rehearsal's run. It keeps as many checkpoints as the real run still needs disk space for.
  Words words(const fs::path& out, const char* every) const {
    Words all = config_.rehearsal_words;
    all.insert(all.end(), {"--out=" + out.string(), std::string("--checkpoint-every=") + every,
                           fmt::format("--keep={}", std::max<i64>(1, config_.run->keep - kept_))});
    if (holds_out()) all.push_back("--validation-steps=1");
    return all;
  }
  Words own_words(const fs::path& out, const char* every) const {
    Words all = words(out, every);
    if (config_.steps) all.push_back(fmt::format("--steps={}", *config_.steps));
    if (config_.epochs) all.push_back(fmt::format("--epochs={}", *config_.epochs));
    return all;
  }
  bool holds_out() const { return !config_.validation_data.empty() || config_.validation_fraction > 0; }

  // Returns the flags of a run that ends at step `last` and keeps its learning-rate curve. If a
  // different --steps would change the warm-up, the run cannot end there and is asked to stop instead.
  Words last_words(i64 last) {
    const bool other_warmup = config_.warmup_steps == default_warmup_steps(config_.lr_schedule, last);
    Words all = other_warmup ? own_words(killed(), "100000") : words(killed(), "100000");
    if (!other_warmup) all.insert(all.end(), {fmt::format("--steps={}", last), "--keep-schedule"});
    if (holds_out()) all.push_back(fmt::format("--validate-every={}", last));
    if (config_.run->sample_every > 0 && samples_soon_enough()) {
      all.push_back(fmt::format("--sample-every={}", last));
      if (!config_.run->prompt.empty()) all.push_back("--prompt=" + config_.run->prompt);
    }
    if (config_.run->histograms_every > 0) all.push_back(fmt::format("--histograms-every={}", last));
    return all;
  }

  // Returns whether a sample takes little enough time to be rehearsed. Each of its tokens needs a forward pass, about a third of a step.
  bool samples_soon_enough() {
    const double sample_s = rows_of(killed()).back().value("step_ms", 0.0) / 1e3 / 3 * kSampledTokens;
    if (sample_s <= kLongestSample_s) return true;
    figures_.left_out =
        fmt::format("--sample-every, whose samples of {} tokens may take {} each", kSampledTokens, format_duration(sample_s));
    return false;
  }

  void phase(const std::string& what) {
    using std::chrono::seconds;
    working_.reset();
    console_.progress("rehearsal: " + (phase_ = what));
    working_.emplace(console_, "rehearsal: " + what, console_.terminal() ? seconds(1) : seconds(5));
  }

  // Throws the error with which a run ended, in the run's own words and with its status.
  [[noreturn]] void failed(const RehearsedRun& run, int status, const std::string& expected) const {
    const ErrorCode code = status == 0 || status == kSaved ? ErrorCode::io : static_cast<ErrorCode>(status);
    const bool beside = code == ErrorCode::refused && kept_ > 0;
    throw Error(code, fmt::format("[rehearse] {}: expected {}, got exit status {}: {}{}", phase_, expected, status, run.words(),
                                  beside ? fmt::format(" (the rehearsal needs disk space in addition to the {} checkpoints of {})", kept_,
                                                       config_.out)
                                         : ""));
  }

  bool norms_may_overflow() const { return config_.precision == Precision::fp16; }

  void be_killed() {
    phase("the first step");
    RehearsedRun run(own_words(killed(), "1"), folder_ / "killed");
    if (!run.runs_until([&] { return steps(killed()) > 0; }) && run.end() != 0) failed(run, run.end(), "the run to take a step");
    phase("a save during training, then kill -9");
    bool late = false, saved = false;  // `late` is tested first, because by the third step the first step's save is over
    const auto shown = [&] {
      return late = steps(killed()) >= kLeastSteps, saved = saved || !checkpoints(killed()).empty(), late || saved;
    };
    const bool runs = run.runs_until(shown);
    check_finite(rows_of(killed()), norms_may_overflow());  // tested first, since a run with other numbers saves no checkpoint
    if (runs && !saved) no_save_on_the_way(run);
    const int status = runs ? run.kill() : run.end();
    if (!runs && status != 0) failed(run, status, "a checkpoint while the run trains");
    figures_.after_kill = runs;
    check_finite(rows_of(killed()), norms_may_overflow());
  }

  // Stops the run and throws. The second save waits for the first; if the first one failed, the run itself only warns until it ends.
  [[noreturn]] void no_save_on_the_way(RehearsedRun& run) const {
    run.send(SIGTERM);
    failed(run, run.end(), fmt::format("a checkpoint by step {}", kLeastSteps));
  }

  // Waits until the run has taken `last` steps, then asks the run to save and exit, unless it has ended by itself.
  void run_to(RehearsedRun& run, i64 last, const fs::path& folder) {
    const bool runs = run.runs_until([&] { return steps(folder) >= last; });
    if (steps(folder) >= last) phase(phase_ + ", and a save");
    if (runs) run.send(SIGTERM);
    const int status = run.end();
    if (status != kSaved && status != 0) failed(run, status, "the run to save and exit");
    figures_.process_bytes = std::max(figures_.process_bytes, run.peak_bytes());
    check_finite(rows_of(folder), norms_may_overflow());
    check_checkpoint(run, folder);
  }

  void go_on() {
    phase("resuming after the kill");
    const i64 before = steps(killed()), last = std::max(kLeastSteps, before + 2);
    RehearsedRun run(last_words(last), folder_ / "gone-on");
    run_to(run, last, killed());
    if (rows_of(killed()).back().value("began_at_step", i64{0}) == 0) failed(run, 0, "the run to resume where it was killed");
    figures_.summary = run.result().dump(-1, ' ', false, Json::error_handler_t::replace);
    std::error_code none;
    fs::remove_all(killed() / "checkpoints", none);  // the next run may need the disk space
  }

  void take_steps() {
    phase("the same number of steps without a kill");
    RehearsedRun run(own_words(straight(), "100000"), folder_ / "straight");
    run_to(run, steps(killed()), straight());
    const std::string saved = run.last_line("saved ");
    if (const size_t at = saved.rfind("blocked "); at != saved.npos) figures_.save = saved.substr(at);
    figures_.checkpoint_bytes = bytes_of(checkpoints(straight()).back());
    figures_.last = rows_of(straight()).back().dump();
  }

  void check_checkpoint(const RehearsedRun& run, const fs::path& folder) const {
    const std::vector<fs::path> saved = checkpoints(folder);
    const i64 last = steps(folder);
    if (saved.empty() || saved.back() != checkpoint_path(folder, last)) failed(run, 0, fmt::format("a checkpoint of step {}", last));
    if (const std::vector<std::string> damage = damage_of_checkpoint(saved.back()); !damage.empty())
      throw Error(ErrorCode::data,
                  fmt::format("[rehearse] {}: the checkpoint on disk differs from what was saved: {}", phase_, damage.front()));
  }

  const TrainConfig& config_;
  Console& console_;
  const fs::path folder_;
  const i64 kept_;  // number of the real run's checkpoints
  std::string phase_;
  std::optional<Working> working_;
  RehearsalFigures figures_;
};

int interrupted(RehearsalFolder& folder, Console& console) {
  const std::string left = folder.clear();
  console.end_progress();
  console.log(fmt::format("rehearsal stopped by {}: {}", stop_signal(),
                          left.empty() ? "nothing is left behind" : "these could not be removed:" + left));
  return kInterrupted;
}

}  // namespace

int run_rehearsal(const TrainConfig& config, Console& console) {
  install_stop_handlers();
  RehearsalFolder folder(config);
  const std::string begin = console.terminal() ? "\n" : "";  // begins a new line below a progress line
  set_stop_answers(begin + "stopping the rehearsal and removing its files; press Ctrl-C again to exit at once",
                   begin + "exited at once; the next rehearsal removes " + folder.path().string());
  if (!checkpoints(config.out).empty()) console.log("rehearses a new run; the run in " + config.out + " is not changed");
  try {
    const RehearsalFigures figures = Rehearsal(config, console, folder.path()).run();
    console.end_progress();
    console.result(console.json() ? to_json(figures) : to_text(figures));
    return 0;
  } catch (const RehearsalInterrupted&) {
    return interrupted(folder, console);
  }
}

}  // namespace spillway::app
