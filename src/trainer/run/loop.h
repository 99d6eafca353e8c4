// TrainingLoop is the training loop of one rank: steps, validation, metrics, progress lines, checkpoints and stopping. It drives a Rank,
// which computes all numerical results, and writes a RunFolder. Between steps it agrees with the other ranks on what to do next. For use by
// one thread.
#pragma once
#include <chrono>
#include <optional>

#include "data/loader/steps_ahead.h"
#include "trainer/checkpoints/best.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/events/callbacks.h"
#include "trainer/plan/profile.h"
#include "trainer/ranks/peers.h"
#include "trainer/record/recorder.h"
#include "trainer/record/time_ahead.h"
#include "trainer/record/wear.h"
#include "trainer/run/data_sources.h"
#include "trainer/run/metrics.h"
#include "trainer/run/resolve.h"
#include "trainer/run/run_folder.h"
#include "trainer/run/saves.h"
#include "trainer/run/session.h"
#include "trainer/run/step_accounts.h"
#include "trainer/run/trace.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

constexpr int kStoppedStatus = 75;

class TrainingLoop {
 public:
  /// `config` must be resolved. `progress` is the point at which the run begins or resumes.
  TrainingLoop(const TrainConfig& config, Session& session, const RunData& data, RunFolder& folder, Messages& messages, const Peers& peers,
               Progress progress, Trace* trace = nullptr, TrainCallbacks callbacks = {});

  /// Trains to the last step or until the run is stopped. Returns the exit status: 0 when
  /// done, 75 when stopped. Throws Error(numbers) after too many non-finite steps in a row.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  struct StepReport {
    parallel::StepResult result;
    double learning_rate = 0, seconds = 0;
    i64 samples = 0;          // rows that the step trained on
    std::string why_skipped;  // why the step's update was skipped; empty if it was not
    std::optional<double> validation_loss, validation_accuracy;
    StepSample accounts;
    int slowest_rank = 0;     // the rank that waited least for the other ranks
    double slowest_wait = 0;  // share of the step's time for which the slowest rank waited
  };
  StepReport step();
  parallel::StepResult take_step(const parallel::StepSettings& settings);
  StepBatch next_batch();
  parallel::StepSettings step_settings() const;
  /// Returns by how many bytes the traffic of all ranks differs from the plan. Collective.
  i64 unplanned_bytes() const;
  double learning_rate() const { return learning_rate(*config_.learning_rate); }
  double learning_rate(double highest) const;
  /// Returns the run's progress after a step with this result.
  Progress after(const parallel::StepResult& result) const;
  std::string record(const parallel::StepResult& result) const;
  /// Says which ranks' losses, or which parameters' gradients, were not finite. Collective.
  std::string why_skipped(const parallel::StepResult& result) const;
  /// Runs a validation. If the report has no validation loss afterwards, the validation was interrupted and is still due.
  void validate(StepReport& report);
  /// Runs a validation that an earlier process did not finish. Returns the exit status if the run stops during the validation.
  std::optional<int> make_up_validation();
  /// Compares the validation loss, which is the same on all ranks, with the best so far.
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
  /// Prints `said` as a warning if it is not empty.
  void warn_of(const std::string& said) const;
  StepReport stepping();
  std::string stop_answer(const std::string& after) const;
  /// Sets the text that answers a signal. `after` names what the run finishes before it stops, such as "this step (about 3 s)".
  void set_answers(const std::string& after);
  std::string what_stands() const;
  std::string what_is_good(const std::vector<std::string>& set_aside) const;
  /// Ends the run because its numbers are not finite, and marks the current state so that no restart resumes from it. Collective; throws
  /// Error(numbers).
  [[noreturn]] void diverge(const std::string& why, const std::string& advice);
  /// Decides after a step and its validation whether the new weights are known to give a finite loss.
  void judge_weights(const StepReport& report);
  void stands(const std::string& line);
  bool checkpoint_due(const StepReport& report) const;
  /// Wanted holds the requests that ranks make after a step. If any rank makes a request, all ranks follow it.
  struct Wanted {
    bool stop = false, time_up = false, save = false, asked = false;
    bool ends() const { return stop || time_up || asked; }
  };
  /// Collects the requests of all ranks, and finds the rank for which the others waited.
  Wanted wanted(StepReport& report) const;
  std::string signal_text() const;
  std::string why_stopped(const Wanted& now) const;
  bool is_asked_to_stop() const;
  /// Returns whether this rank should interrupt a long operation between two of its parts. It should
  /// if a signal arrived, or if the remaining time is enough only for one more part and a save.
  bool breaks_off(double part_s) const;
  bool has_run_out_of_patience() const { return callbacks_.patience > 0 && progress_.standing.no_better >= callbacks_.patience; }
  bool is_over() const { return progress_.step >= *config_.steps || has_run_out_of_patience(); }
  /// Checks the time limit before the first step of this process. Returns the reason why the step is not begun, or an empty text.
  std::string why_not_begun();
  TimeAhead::Next after_next_step() const;
  /// Returns how many seconds will pass until the time limit is checked again. If a validation is due, this is
  /// the time of one part of the validation. If not, it is the time of the next step and what follows that step.
  double seconds_ahead() const;
  /// Saves a checkpoint. Final and stopping saves have `must`: they wait for the save and throw
  /// its error. Without `must` training goes on during the save, and an error is a warning.
  void save(bool must);
  void finish_save();
  static std::optional<double> seconds_left(const TrainConfig& config);
  bool time_is_up() const;
  int stop(const std::string& why);
  void end(const StepReport& last);
  void finish(const StepReport& last);
  Trained trained() const;
  /// The five lines that end a run.
  std::string summary_text(const StepReport& last) const;
  std::string trained_text() const;
  std::string time_text() const;
  std::string memory_text() const;
  std::string wear_text(const char* indent) const;
  std::string result_text() const;
  std::string next_command() const;
  /// What --audit prints before the five lines; always in log.txt.
  std::string audit_text() const;
  Wear wear() const;
  Calibration calibration() const;
  /// Returns the table of --profile.
  std::vector<ProfileRow> profile_rows(const Calibration& node) const;
  std::string profile_text() const;
  i64 positions_per_step() const;
  /// Returns the plural noun for what the model reads: "tokens" or "images".
  const char* unit() const { return session_.model().reads_images() ? "images" : session_.model().reads_tokens() ? "tokens" : "samples"; }
  double seconds_since(Clock::time_point start) const { return std::chrono::duration<double>(Clock::now() - start).count(); }

  const TrainConfig& config_;
  Session& session_;
  const RunData& data_;
  // prefetches the data of the next step; on a CPU it is empty, because there is memory for one step only
  std::optional<data::StepsAhead> steps_ahead_;
  RunFolder& folder_;
  Messages& messages_;
  const Peers& peers_;
  Trace* const trace_;  // writes the trace file; null without the flag --trace
  const TrainCallbacks callbacks_;
  Progress progress_;
  const std::string numbers_hash_;
  const i64 first_step_, first_tokens_;
  const Clock::time_point start_;
  Clock::time_point last_save_;
  const TimeLimit limit_;
  TimeAhead ahead_;
  std::optional<double> first_loss_;  // the loss of this process's first step
  double stepping_s_ = 0;             // seconds of this process's steps
  i64 counted_targets_ = 0;           // targets that contributed to the loss in this process's steps
  i64 answered_step_ = -1;            // the step of the saved checkpoint that the answer to a signal names
  std::optional<double> last_validation_, last_accuracy_;
  std::optional<Best> kept_;     // the checkpoint that best.json names
  std::optional<Best> to_keep_;  // the checkpoint that best.json will name once the checkpoint is durable
  bool is_best_ = false;         // true if the last validation had the lowest loss so far
  bool validated_late_ = false;  // true if make_up_validation() made the validation that an earlier process had not finished
  bool owes_save_ = false;       // true if a save was due after a step whose weights were not known to be good
  Wear last_wear_;               // wear of the drives, computed after the last step
  std::optional<Profile> profile_;
  double step_seconds_ = 0;   // duration of the last step, in seconds
  const double model_flops_;  // FLOPs of one step on this rank
  const std::optional<double> matmul_flops_;
  Saves saves_;
  StepAccounts accounts_;
  const Recorder recorder_;
};

}  // namespace spillway::trainer
