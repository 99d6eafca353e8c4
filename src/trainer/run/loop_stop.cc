// Decides when and how a training run stops: at a signal, before its time limit, or when its numbers are of no use. Also says what was
// saved and how to continue.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "base/error.h"
#include "base/units.h"
#include "trainer/node/host.h"
#include "trainer/node/process_memory.h"
#include "trainer/node/stop.h"
#include "trainer/node/working.h"
#include "trainer/run/loop.h"
#include "trainer/settings/run_settings.h"

namespace spillway::trainer {
namespace {

constexpr double kMostBlocked = 0.5;  // a save may block a step for at most this share of the step's time

// Returns the time that a Slurm variable holds, in seconds since 1970. Returns nothing if the variable is unset or holds no valid time.
std::optional<std::time_t> slurm_time(const char* variable) {
  const std::time_t time = std::atoll(Host{}.env(variable).value_or("0").c_str());
  return time > 0 ? std::optional(time) : std::nullopt;
}

// Returns how many seconds of --time-limit have passed. They count from the start of the
// Slurm allocation if Slurm reports that time, otherwise from the start of this process.
double seconds_gone() {
  const auto begin = slurm_time("SLURM_JOB_START_TIME");
  return begin ? std::max(0.0, std::difftime(std::time(nullptr), *begin)) : process_age_s();
}

}  // namespace

// Returns the seconds until the run must end, by --time-limit or by the end of the Slurm job, whichever comes first. Returns nothing if
// there is no limit.
std::optional<double> TrainingLoop::seconds_left(const TrainConfig& config) {
  std::optional<double> left;
  if (config.run->time_limit_s) left = static_cast<double>(*config.run->time_limit_s) - seconds_gone();
  if (const auto end = slurm_time("SLURM_JOB_END_TIME")) {
    const double slurms = std::difftime(*end, std::time(nullptr));
    left = std::min(left.value_or(slurms), slurms);
  }
  return left;
}

TimeAhead::Next TrainingLoop::after_next_step() const {
  const i64 step = progress_.step + 1;
  const auto at = [&](i64 every) { return every > 0 && step % every == 0; };
  return {validates_after(step), at(config_.run->sample_every), at(config_.run->histograms_every)};
}

double TrainingLoop::seconds_ahead() const {
  return progress_.standing.owes_validation ? ahead_.part_of_validation_s() : ahead_.seconds(after_next_step());
}

bool TrainingLoop::time_is_up() const { return limit_.is_short(seconds_since(start_), seconds_ahead(), saves_.seconds()); }

// Only the first rank's estimate of the step's time counts, because only this rank predicted the plan.
std::string TrainingLoop::why_not_begun() {
  if (!limit_.any()) return "";
  const parallel::Program& program = session_.chosen().train;
  if (peers_.first()) ahead_.step = LongestLately(session_.prediction().step(program).seconds);
  if (peers_.most({peers_.first() && time_is_up()})[0] == 0) return "";
  return fmt::format(
      "the time limit is near: step {} was not started, because it may take {} (predicted), a save {}, and only {} are left; nothing was "
      "trained; run "
      "the same command again with more time",
      progress_.step + 1, format_duration(ahead_.step.seconds()), format_duration(saves_.seconds()),
      format_duration(std::max(0.0, limit_.left_s(seconds_since(start_)))));
}

// Names the signal that stops the run. If several ranks received a signal, the signal of the lowest rank is named.
std::string TrainingLoop::signal_text() const {
  const std::vector<std::string> signals = peers_.gather(stop_signal());
  for (size_t r = 0; r < signals.size(); ++r) {
    if (!signals[r].empty()) return signals[r] + (signals.size() > 1 ? " of " + peers_.name(static_cast<int>(r)) : "");
  }
  return "a signal";
}

bool TrainingLoop::is_asked_to_stop() const { return peers_.first() && callbacks_.wants_stop && callbacks_.wants_stop(); }

bool TrainingLoop::breaks_off(double part_s) const {
  return stop_requested() || is_asked_to_stop() || limit_.is_short(seconds_since(start_), part_s, saves_.seconds());
}

std::string TrainingLoop::why_stopped(const Wanted& now) const {
  if (now.stop) return "stopped by " + signal_text();
  if (now.asked) return "stopped";
  return fmt::format("the time limit is near (the next part may take {}, a save {}), so the run was stopped",
                     format_duration(seconds_ahead()), format_duration(saves_.seconds()));
}

// Returns the text that answers a signal. On a terminal it starts below the progress line.
std::string TrainingLoop::stop_answer(const std::string& after) const {
  const char *begin = messages_.terminal() ? "\n" : "", *middle = messages_.terminal() ? "\n" : "; ";
  return fmt::format("{}stopping after {}, then saving{}press Ctrl-C again to leave without saving", begin, after, middle);
}

void TrainingLoop::set_answers(const std::string& after) {
  answered_step_ = saves_.saved_step();
  if (peers_.first())
    set_stop_answers(stop_answer(after), fmt::format("{}stopped without saving; {}", messages_.terminal() ? "\n" : "", what_stands()));
}

// Returns a sentence on what a restart of the run can resume from.
std::string TrainingLoop::what_stands() const {
  if (session_.chosen().recoverable()) return "the run's state on nvme is kept";
  return saves_.saved_step() < 0 ? "nothing was saved yet" : fmt::format("the checkpoint of step {} is kept", saves_.saved_step());
}

// Returns a sentence on what a restart can resume from after the loss diverged, when the state on nvme is discarded and the checkpoints
// in `set_aside` were renamed.
std::string TrainingLoop::what_is_good(const std::vector<std::string>& set_aside) const {
  std::string text = "nothing was saved yet, so the same command starts from the beginning";
  if (!set_aside.empty()) text = "no checkpoint is known to be good, so the same command starts from the beginning";
  if (!config_.resume.path.empty()) text = fmt::format("the same command goes on from {}", config_.resume.path);
  if (const i64 good = saves_.saved_step(); good >= 0) {
    text =
        fmt::format("the last good checkpoint is {}, and the same command goes on from it", checkpoint_path(folder_.path(), good).string());
  }
  if (!set_aside.empty())
    text += fmt::format(" (renamed and kept, because the loss of its weights is not finite: {})", fmt::join(set_aside, ", "));
  return text + " and gets the same numbers again unless an option is changed";
}

void TrainingLoop::diverge(const std::string& why, const std::string& advice) {
  saves_.finish(false);
  const std::vector<std::string> set_aside = saves_.set_doubtful_aside();
  progress_.standing.diverged = true;
  peers_.together([&] {
    parallel::ModelState& state = session_.rank().state();
    state.commit(state.generation(), to_record(progress_, numbers_hash_, ""));
  });
  throw AgreedError(ErrorCode::numbers,
                    fmt::format("{}; {}: try a lower --learning-rate with --allow-change learning_rate, or a longer --warmup-steps with "
                                "--allow-change warmup_steps{}",
                                why, what_is_good(set_aside), advice));
}

bool TrainingLoop::checkpoint_due(const StepReport& report) const {
  const Cadence& every = config_.run->checkpoint_every;
  switch (every.unit) {
    case Cadence::Unit::steps:
      return progress_.step % every.count == 0;
    case Cadence::Unit::seconds:
      return seconds_since(last_save_) >= static_cast<double>(every.count);
    case Cadence::Unit::epochs: {
      const i64 windows = data_.training->windows() * every.count;
      return progress_.cursor / windows > (progress_.cursor - report.samples) / windows;
    }
  }
  return false;
}

void TrainingLoop::save(bool must) {
  if (!saves_.has(progress_.step)) {
    accounts_.settle();
    saves_.begin(progress_, step_seconds_ * kMostBlocked, must);
  }
  if (must) finish_save();
  owes_save_ = false;
  last_save_ = Clock::now();
}

void TrainingLoop::finish_save() try {
  const Working working(messages_, "saving");
  saves_.finish(true);
} catch (const AgreedError& e) {
  if (e.code() != ErrorCode::numbers) throw;
  diverge(fmt::format("[train] step {} was not saved: {}", progress_.step, e.what()), "");
}

// Stops the run and saves its state. After a step with a non-finite loss the weights may be useless, so nothing is saved and the earlier
// saves remain.
int TrainingLoop::stop(const std::string& why) {
  const bool sound = !progress_.standing.unsound;
  sound ? save(true) : saves_.finish(false);
  messages_.end_progress();
  messages_.log(fmt::format("{} after step {} of {}: {}; run the same command again to go on{}", why, progress_.step, *config_.steps,
                            sound ? "saved" : "not saved, because the loss or gradient norm of this step is not finite; " + what_stands(),
                            progress_.standing.owes_validation ? ", beginning with the validation after this step" : ""));
  if (profile_) messages_.log(profile_text());
  return kStoppedStatus;
}

// Saves the final checkpoint, unless this process took no step and resumed from a checkpoint of the last step.
void TrainingLoop::end(const StepReport& last) {
  if (has_run_out_of_patience()) {
    const i64 count = progress_.standing.no_better;
    stands(fmt::format("stopped early after step {} of {}: {} validation{} in a row did not improve on the best loss{}", progress_.step,
                       *config_.steps, count, count == 1 ? "" : "s",
                       progress_.step == first_step_ ? "; a larger patience continues the run" : ""));
  }
  const bool is_saved = progress_.step == first_step_ && saves_.saved_step() == progress_.step && !validated_late_;
  if (!config_.run->no_final_checkpoint && !is_saved) {
    if (progress_.standing.unsound) {
      saves_.finish(false);  // after finish(), the message below names the newest checkpoint
      throw AgreedError(ErrorCode::numbers,
                        fmt::format("[train] the last step, {}, is not saved: its loss or its gradient norm is not finite; {}. If only "
                                    "this batch causes it, a larger --steps continues the run",
                                    progress_.step, what_stands()));
    }
    save(true);
  }
  saves_.finish(false);
  finish(last);
}

}  // namespace spillway::trainer
