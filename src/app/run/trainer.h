// The training loop of one rank: steps, validation, metrics, progress, checkpoints, stopping. It drives a Rank and writes a RunFolder; what
// the numbers are is decided below it. Between steps it agrees with its peers on what comes next. One thread.
#pragma once
#include <chrono>
#include <optional>

#include "app/checkpoints/best.h"
#include "app/checkpoints/checkpoint.h"
#include "app/events/callbacks.h"
#include "app/flags/config.h"
#include "app/plan/profile.h"
#include "app/ranks/peers.h"
#include "app/record/recorder.h"
#include "app/record/time_ahead.h"
#include "app/record/wear.h"
#include "app/run/data_sources.h"
#include "app/run/metrics.h"
#include "app/run/resolve.h"
#include "app/run/run_folder.h"
#include "app/run/saves.h"
#include "app/run/session.h"
#include "app/run/step_accounts.h"
#include "app/run/trace.h"
#include "data/steps_ahead.h"

namespace spillway::app {

constexpr int kStoppedStatus = 75;

class Trainer {
 public:
  /// `config` is resolved; `progress` is where the run goes on.
  Trainer(const TrainConfig& config, Session& session, const RunData& data, RunFolder& folder, Console& console, const Peers& peers,
          Progress progress, Trace* trace = nullptr, TrainCallbacks callbacks = {});

  /// Trains to the last step or until stopped; returns the exit status (0 or 75). Error(numbers) after too many non-finite steps.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  struct StepReport {
    parallel::StepResult result;
    double learning_rate = 0, seconds = 0;
    std::string why_skipped;  // where it was
    std::optional<double> validation_loss, validation_accuracy;
    StepSample accounts;
    int slowest_rank = 0;     // it waited least for the others
    double slowest_wait = 0;  // and this share of the step
  };
  StepReport step();
  parallel::StepResult take_step(const parallel::StepSettings& settings);
  StepBatch next_batch();
  parallel::StepSettings step_settings() const;
  /// By the steps of all ranks, who call this together.
  i64 unplanned_bytes() const;
  double learning_rate() const { return learning_rate(*config_.learning_rate); }
  double learning_rate(double highest) const;
  /// Where the run stands after a step of this result.
  Progress after(const parallel::StepResult& result) const;
  std::string record(const parallel::StepResult& result) const;
  /// By which rank's loss, or which parameters' gradients. All ranks call it together.
  std::string why_skipped(const parallel::StepResult& result) const;
  /// Without a loss in the report it was interrupted, and is owed.
  void validate(StepReport& report);
  /// One that an earlier start owes. Returns the exit status where the run stops in it.
  std::optional<int> make_up_validation();
  /// Best or not, by a loss that all ranks know.
  void judge(const StepReport& report);
  void find_best();
  void name_best();
  void tell(const StepReport& report) const;
  void tell_validation(const StepReport& report) const;
  bool validates_after(i64 step) const;
  void write_metrics(const StepReport& report);
  void show_progress(const StepReport& report);
  void show_validation(const StepReport& report);
  void sample();
  void write_histograms();
  /// For whoever watches the run, where something is said.
  void warn_of(const std::string& said) const;
  StepReport stepping();
  std::string stop_answer(const std::string& after) const;
  /// What a signal is answered with; `after`: what is done to its end first, "this step (about 3 s)".
  void set_answers(const std::string& after);
  std::string what_stands() const;
  std::string what_is_good(const std::vector<std::string>& set_aside) const;
  /// The run is over, and nothing goes on from what it has: Error(numbers), on all ranks together.
  [[noreturn]] void diverge(const std::string& why, const std::string& advice);
  /// After a step and its validation: whether the weights are of any use.
  void judge_weights(const StepReport& report);
  void stands(const std::string& line);
  bool checkpoint_due() const;
  /// What any rank wants to be done after this step, all do.
  struct Wanted {
    bool stop = false, time_up = false, save = false, asked = false;
    bool ends() const { return stop || time_up || asked; }
  };
  /// Also sees who kept the others waiting.
  Wanted wanted(StepReport& report) const;
  std::string signal_text() const;
  std::string why_stopped(const Wanted& now) const;
  bool is_asked_to_stop() const;
  /// On this rank, between the parts of something long: a signal came, or there is only time for one more part and a save.
  bool breaks_off(double part_s) const;
  bool has_run_out_of_patience() const { return callbacks_.patience > 0 && progress_.standing.no_better >= callbacks_.patience; }
  bool is_over() const { return progress_.step >= *config_.steps || has_run_out_of_patience(); }
  /// Before the first step of this process. Empty, or why it is not begun.
  std::string why_not_begun();
  TimeAhead::Next after_next_step() const;
  /// Until it is asked again whether there is time: a part of the validation that is to come, else the next step and what follows it.
  double seconds_ahead() const;
  /// `must`: waits and throws an error on (final and stopping saves); else it goes on beside training, and an error is a warning.
  void save(bool must);
  void finish_save();
  static std::optional<double> seconds_left(const TrainConfig& config);
  bool time_is_up() const;
  int stop(const std::string& why);
  void end(const StepReport& last);
  void finish(const StepReport& last);
  Trained trained() const;
  std::string trained_text() const;
  Wear wear() const;
  Calibration calibration() const;
  /// With --profile.
  std::vector<ProfileRow> profile_rows(const Calibration& node) const;
  std::string profile_text() const;
  i64 tokens_per_step() const;
  bool reads_images() const { return session_.model().reads_images(); }
  double seconds_since(Clock::time_point start) const { return std::chrono::duration<double>(Clock::now() - start).count(); }

  const TrainConfig& config_;
  Session& session_;
  const RunData& data_;
  std::optional<data::StepsAhead> steps_ahead_;  // where a GPU computes: a CPU's memory is planned for one step's
  RunFolder& folder_;
  Console& console_;
  const Peers& peers_;
  Trace* const trace_;  // null: none wanted
  const TrainCallbacks callbacks_;
  Progress progress_;
  const std::string numbers_hash_;
  const i64 first_step_;
  const Clock::time_point start_;
  Clock::time_point last_save_;
  const TimeLimit limit_;
  TimeAhead ahead_;
  i64 counted_targets_ = 0;  // of this process's steps
  i64 answered_step_ = -1;   // the saved one that the answers know of
  std::optional<double> last_validation_, last_accuracy_;
  std::optional<Best> kept_;     // of the checkpoint that best.json names
  std::optional<Best> to_keep_;  // that it will name, once its checkpoint is durable
  bool is_best_ = false;         // the last validation was, of all
  bool validated_late_ = false;  // make_up_validation() did
  bool owes_save_ = false;       // one was due while the weights were in doubt
  Wear last_wear_;               // as of the last step
  std::optional<Profile> profile_;
  double step_seconds_ = 0;   // of the last step
  const double model_flops_;  // of a step of this rank
  const std::optional<double> matmul_flops_;
  Saves saves_;
  StepAccounts accounts_;
  const Recorder recorder_;
};

}  // namespace spillway::app
