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
#include "app/run/data_sources.h"
#include "app/run/metrics.h"
#include "app/run/resolve.h"
#include "app/run/run_folder.h"
#include "app/run/saves.h"
#include "app/run/session.h"
#include "app/run/step_accounts.h"
#include "app/run/trace.h"
#include "app/run/wear.h"
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
    i64 samples = 0;          // rows that it trained on
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
  void validate(StepReport& report);
  /// Best or not, by a loss that all ranks know.
  void judge(const StepReport& report);
  void name_best();
  void tell(const StepReport& report) const;
  bool validates_now() const;
  void write_metrics(const StepReport& report);
  void show_progress(const StepReport& report);
  void sample();
  void write_histograms();
  /// For whoever watches the run, where something is said.
  void warn_of(const std::string& said) const;
  StepReport stepping();
  std::string stop_answer(const std::string& when) const;
  /// What a signal is answered with; `when`: how long the step may take.
  void set_answers(const std::string& when);
  std::string what_stands() const;
  void stands(const std::string& line);
  bool checkpoint_due(const StepReport& report) const;
  /// What any rank wants to be done after this step, all do.
  struct Wanted {
    bool stop = false, time_up = false, save = false, asked = false;
  };
  /// Also sees who kept the others waiting.
  Wanted wanted(StepReport& report) const;
  std::string signal_text() const;
  /// `must`: waits and throws an error on (final and stopping saves); else it goes on beside training, and an error is a warning.
  void save(bool must);
  bool time_is_up() const;
  int stop(const std::string& why);
  void finish(const StepReport& last);
  Trained trained() const;
  std::string trained_text() const;
  Wear wear() const;
  Calibration calibration() const;
  /// With --profile.
  std::vector<ProfileRow> profile_rows(const Calibration& node) const;
  std::string profile_text() const;
  i64 positions_per_step() const;
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
  const i64 first_step_, first_tokens_;
  const Clock::time_point start_;
  Clock::time_point last_save_;
  std::optional<double> limit_s_;
  i64 nonfinite_in_a_row_ = 0;
  i64 counted_targets_ = 0;  // of this process's steps
  i64 answered_step_ = -1;   // the saved one that the answers know of
  std::optional<double> last_validation_, last_accuracy_;
  std::optional<Best> best_;
  i64 no_better_ = 0;  // validations since the best one
  Wear last_wear_;     // as of the last step
  std::optional<Profile> profile_;
  double step_seconds_ = 0;   // of the last step
  const double model_flops_;  // of a step of this rank
  const std::optional<double> matmul_flops_;
  Saves saves_;
  StepAccounts accounts_;
  const Recorder recorder_;
};

}  // namespace spillway::app
