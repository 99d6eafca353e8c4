// Implements `spillway train`, which refuses whatever it can before the first byte is written, in this order: model, data, plan, run
// folder.
#include "trainer/train/train.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/units.h"
#include "parallel/sockets/build_id.h"
#include "trainer/checkpoints/adapters.h"
#include "trainer/checkpoints/deepspeed_state.h"
#include "trainer/checkpoints/number_rules.h"
#include "trainer/node/failure.h"
#include "trainer/node/grant.h"
#include "trainer/node/own_program.h"
#include "trainer/node/stop.h"
#include "trainer/node/version.h"
#include "trainer/node/working.h"
#include "trainer/ranks/attention_choice.h"
#include "trainer/ranks/device_choice.h"
#include "trainer/ranks/rank_report.h"
#include "trainer/ranks/same_flags.h"
#include "trainer/resume/left_state.h"
#include "trainer/resume/run_contents.h"
#include "trainer/run/data_sources.h"
#include "trainer/run/loop.h"
#include "trainer/run/resolve.h"
#include "trainer/run/run_on_ranks.h"
#include "trainer/run/start.h"
#include "trainer/run/text_notice.h"
#include "trainer/settings/pipeline_wish.h"
#include "trainer/settings/run_settings.h"
#include "trainer/settings/weighted_path.h"
#include "trainer/train/train_checks.h"
#include "trainer/train/train_notes.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

// RankRun runs the training of one rank, from its flags to its last step. Every error that
// can be found in advance is reported before the first byte is written, by all ranks together.
class RankRun {
 public:
  RankRun(const TrainConfig& config, Messages& messages, const Peers& peers, const TrainCallbacks& callbacks, const OwnParts& own)
      : config_(config), messages_(messages), peers_(peers), callbacks_(callbacks), own_(own) {
    config_.ranks = peers.ranks();
  }

  ~RankRun() { messages_.record({}); }

  /// Runs the training. If another run must come first, sets `first` to its configuration and returns. The caller must do that run and then
  /// call run() on a new RankRun with the same flags.
  int run(std::optional<TrainConfig>* first = nullptr) try {
    first_ = first;
    return run_all();
  } catch (...) {
    if (folder_) folder_->log("error: " + failure_of(std::current_exception()).text);
    throw;
  }

 private:
  int run_all() {
    set_answers();
    {
      const Working working(messages_, [this] { return preparation_.text("reading model and data"); });
      peers_.together([&] { read_all(); });
      contents_ = parse_contents(peers_.from_first(to_json(contents_)));
      peers_.together([&] { find_beginning(); });
    }
    if (stops()) return stop();
    check_same_flags(peers_, to_json(config_), facts());
    const bool owes_validation = progress_.standing.owes_validation && data_->held_out;
    if (start_.checkpoint && progress_.step >= *config_.steps && !owes_validation) {
      if (peers_.first()) tidy_finished(config_.out);
      tell_of_end();
      return 0;
    }
    {
      const Working working(messages_, "planning");
      choose_plan();
    }
    if (stops()) return stop();
    if (const i64 step = peers_.most({left_state_.save_step})[0]; step >= 0 && first_) {
      messages_.log(left_state_.note);
      *first_ = saving_config(config_, step);
      return 0;
    }
    {
      const Working working(messages_, [this] { return session_->taking(); });
      peers_.together([&] { take_all(); });
      prepare_attention();
      peers_.together([&] { session_->make_rank(); });
      recover();
    }
    if (recovery_.record && start_.checkpoint) leave_damaged_state();
    note_machine(progress_, session_->device(), attention_, messages_);
    introduce();
    if (stops()) return stop();
    if (!recovery_.record) load();
    peers_.together([&] { check_padding(*session_, config_, *data_); });
    if (stops()) return stop();
    peers_.together([&] { begin_run(); });
    const int status = train();
    session_->give_up_scratch(status == 0);
    return status;
  }

  // Sets the lines that are printed if a signal arrives before the first step.
  void set_answers() const {
    const char *begin = messages_.terminal() ? "\n" : "", *middle = messages_.terminal() ? "\n" : "; ";
    if (peers_.first())
      set_stop_answers(fmt::format("{}stopping before the first step{}press Ctrl-C again to exit at once", begin, middle),
                       fmt::format("{}exited before the first step", begin));
  }
  bool stops() const {
    const bool asked = peers_.first() && callbacks_.gives_up && callbacks_.gives_up();
    return peers_.most({stop_requested() || asked})[0] != 0;
  }
  int stop() const {
    messages_.end_progress();
    messages_.log(fmt::format("stopped{} before the first step: nothing was trained; run the same command again",
                              *stop_signal() ? fmt::format(" by {}", stop_signal()) : ""));
    return kStoppedStatus;
  }

  void read_all() {
    check_stages(config_);
    resolve_device(config_, look_at_gpus(config_, peers_.place().local_rank));
    source_ = own_.model ? own_model(config_.model, own_.model) : find_model(config_.model);
    check_weights(config_, source_);
    resolve_model(config_, source_);
    source_.tokenizer = tokenizer_place(config_, source_);
    if (config_.chat_template) source_.chat_template = chat_template_of(config_.chat_template, chat_folder(source_))->source();
    ranks_before_ = keep_global_batch(config_);
    const parallel::Mesh mesh{static_cast<int>(config_.data_ranks()), static_cast<int>(config_.pipeline_stages)};
    const int rank = mesh.data_rank(peers_.rank()), workers = loader_workers(config_, peers_.place());
    data_ = own_.data.training ? std::make_unique<const RunData>(config_, rank, workers, own_.data, source_)
                               : std::make_unique<const RunData>(config_, rank, workers, source_, &preparation_);
    resolve_steps(config_, *data_->training);
    if (peers_.first()) contents_ = contents_now(config_, source_, *data_);
  }

  void find_beginning() {
    if (config_.out.empty()) config_.out = find_out(config_, contents_);
    asked_ = config_.resume;
    same_ = same_contents(config_.out, config_, contents_of_run(config_.out, {}), contents_);
    settle_resume(config_, same_);
    start_ = find_start(config_);
    if (!start_.checkpoint) return;
    progress_ = start_.progress;
    keep_tied_head(*start_.checkpoint, progress_, source_);
    contents_notes_ = check_same_run(run_of(*start_.checkpoint), config_, progress_, contents_);
  }

  Facts facts() const {
    return {this_program(),
            {"windows of --data", std::to_string(data_->training->windows())},
            {"checkpoint in --out", start_.checkpoint ? std::to_string(progress_.step) : "none"}};
  }

  void choose_plan() {
    const ChosenDevice device = device_on_ranks(config_, peers_);
    peers_.together([&] {
      session_.emplace(config_, device, std::move(source_), scratch_run_id(config_.out), state_of(config_), peers_.place(),
                       pipeline_of(config_));
    });
    plan_on_ranks(peers_, *session_, *config_.placement, work_of(config_));
    peers_.together([&] { left_state_ = check_left_state(*session_, config_, progress_, same_); });
    if (peers_.communicator()) ends_ = split_mesh(*peers_.communicator(), session_->mesh());
  }

  void take_all() {
    if (peers_.first()) check_disk(config_, *session_);
    folder_.emplace(config_.out, peers_.first());
    if (peers_.first()) {
      check_unchanged();
      const MemoryGrant grant = memory_grant(Host{});
      folder_->log(fmt::format("{}\n  spillway {}, build {}, on {}, {} of memory granted (bounded by {})", own_command_line(), kVersion,
                               parallel::build_id(), Peers::host_name(), format_bytes(grant.bytes), grant.bounded));
      report_log_file(fs::absolute(folder_->path() / "log.txt").string());
      messages_.record([this](std::string_view line) { folder_->log(line); });
      remove_rests(folder_->path());
    }
    session_->open(config_.run->trace ? &watch_ : nullptr, &ends_);
  }

  void prepare_attention() {
    if (config_.attention == Attention::own) return;
    const kernels::AttentionShape shape =
        attention_shape(session_->source().config, config_.micro_batch_rows(), *config_.sequence_length, session_->dtype());
    attention_ = trainer::prepare_attention(shape, session_->device(), session_->device_pool(), peers_, progress_.made_with);
  }

  // Throws if another process that had locked the run folder until now has saved a checkpoint while this process made its plan.
  void check_unchanged() const {
    const Start now = find_start(config_);
    if (now.checkpoint == start_.checkpoint && now.progress.step == start_.progress.step) return;
    throw Error(ErrorCode::usage,
                fmt::format("[run folder] another process had {} in use until now and saved step {} meanwhile: run the same "
                            "command again",
                            config_.out, now.progress.step));
  }

  // Resumes from the last optimizer step whose state all ranks hold on nvme. If there is none, resumes from the checkpoint.
  void recover() {
    const auto generation = [&] {
      const parallel::ModelState& state = session_->rank().state();
      return state.recovered() ? static_cast<i64>(state.generation()) : -1;
    };
    const i64 least = -peers_.most({-generation()})[0];
    peers_.together([&] {
      if (least >= 0 && generation() > least) session_->go_back_to(static_cast<u64>(least));
    });
    if (gives_up_for_checkpoint()) leave_damaged();
    peers_.together([&] { recovery_ = recoverable(*session_, config_, progress_, same_); });
    const i64 step = recovery_.record ? recovery_.record->progress.step : -1;
    const std::vector<i64> steps = peers_.most({step, -step});
    if (steps[0] != -steps[1]) recovery_ = {.set_aside = fmt::format("it is the state of step {}, which not all ranks have", steps[0])};
    if (config_.resume.kind == Resume::Kind::must && !start_.checkpoint && !recovery_.record)
      peers_.together([&] { nothing_to_go_on_from(config_); });
    if (recovery_.record) progress_ = recovery_.record->progress, progress_.thawed = contents_of_run(config_.out, progress_).thawed;
    peers_.together([&] {
      if (recovery_.record) contents_notes_ = check_same_run(config_.out, config_, progress_, contents_);
      if (!recovery_.set_aside.empty() && session_->rank().state().recovered()) session_->set_state_aside();
    });
  }

  // Checks the state on nvme for damage. This is done only if there is a checkpoint to use instead; without one, damage ends the run in its
  // first step.
  void leave_damaged_state() {
    const Working working(messages_, "reading the state on nvme");
    std::string damage;
    peers_.together([&] { damage = session_->rank().state().damage_of_recovered(); });
    if (peers_.most({!damage.empty()})[0] == 0) return;
    recovery_ = {.damaged = damage.empty() ? "the state of another rank" : damage};
    progress_ = start_.progress;
  }

  // Returns whether a checkpoint is used instead of the state on nvme. If so, the whole checkpoint must be read before that state is
  // discarded.
  bool gives_up_for_checkpoint() {
    const auto& left = session_->rank().state().recovered();
    const std::optional<Record> record = left ? parse_record(*left) : std::nullopt;
    const bool gives_up =
        start_.checkpoint && record &&
        (record->progress.step <= progress_.step || record->progress.standing.diverged || config_.resume.kind == Resume::Kind::path);
    return peers_.most({gives_up})[0] != 0;
  }

  // The first rank reads the whole checkpoint on behalf of all ranks. If the checkpoint is damaged, an earlier one replaces it.
  void leave_damaged() {
    peers_.together([&] {
      if (peers_.first()) start_ = find_whole(config_, std::move(start_));
    });
    const std::string whole = peers_.from_first(start_.checkpoint ? start_.checkpoint->string() : "");
    start_.checkpoint = whole.empty() ? std::nullopt : std::optional<fs::path>(whole);
    peers_.together([&] { start_.progress = start_.checkpoint ? read_progress(*start_.checkpoint) : Progress(); });
    progress_ = start_.progress;
  }

  void introduce() {
    if (progress_.step > 0 && ranks_before_ != config_.ranks) {
      messages_.log(
          fmt::format("the run was on {} rank{} before; now {} add{} up the same batch in another order, so the last bits may differ",
                      ranks_before_, ranks_before_ == 1 ? "" : "s", config_.ranks, config_.ranks == 1 ? "s" : ""));
    }
    tell_of_damaged();
    if (peers_.first()) {
      for (const std::string& note : model_notes(session_->source(), session_->model())) messages_.log("model: " + note);
      for (const std::string& change : changed_rules(progress_, session_->source(), session_->model()))
        messages_.warn("an older version of this program began the run: from here on " + change);
    }
    for (const auto& data : {weighted_paths(config_.data).paths, config_.validation_data}) {
      if (const std::string notice = peers_.first() ? text_notice(data) : ""; !notice.empty()) messages_.warn(notice);
    }
    if (const std::string notice = folder_->lock_notice(); !notice.empty()) messages_.warn(notice);
    if (!data_->text_note.empty() && peers_.first()) messages_.log("data: " + data_->text_note);
    for (const auto* sources : {&data_->sources, &data_->validation_sources}) {
      if (*sources && peers_.first()) {
        for (const std::string& note : (*sources)->notes()) messages_.log("data: " + note);
      }
    }
    settle_rows();
    tell_of_start();
    for (const std::string& note : contents_notes_) messages_.log(note);
    if (!left_state_.note.empty()) messages_.warn(left_state_.note);
    if (is_from_deepspeed()) {
      tell_of_deepspeed();
    } else if (start_.checkpoint && !recovery_.record && !has_checksums(*start_.checkpoint)) {
      messages_.log("the checkpoint has no checksums, because an older program made it: damage to its files cannot be detected");
    }
    if (config_.resume.kind == Resume::Kind::path && !is_from_deepspeed() && !fs::exists(run_of(*start_.checkpoint) / "config.json"))
      messages_.log("the run of the checkpoint has no config.json: whether this run has the same settings cannot be checked");
    tell_of_schedule();
    tell_of_plan(*session_, config_, messages_);
    if (!attention_.empty()) messages_.log("attention: " + attention_);
    tell_of_nvme(*session_, config_, messages_, recovery_);
  }

  // Determines the row of the data at which the run resumes. Logs what differs from the earlier run. Called again for each checkpoint or
  // state from which the run tries to resume, before the run folder is changed.
  void settle_rows() {
    const fs::path run = recovery_.record ? fs::path(config_.out) : start_.checkpoint ? run_of(*start_.checkpoint) : fs::path();
    const std::string before = run.empty() ? "" : read_whole(run / "config.json").value_or("");
    const std::vector<double> weights = before.empty() ? std::vector<double>() : weighted_paths(run_config(before).data).weights;
    std::vector<std::string> notes = {older_epochs_note(progress_, *data_->training)};
    notes.push_back(settle_mixture(progress_, weights, contents_.find("data"), *data_->training));
    for (std::string& note : data_->mixture_notes(config_, *config_.steps * config_.global_batch())) notes.push_back(std::move(note));
    for (const std::string& note : notes) {
      if (peers_.first() && !note.empty()) messages_.log("data: " + note);
    }
  }

  bool is_of_elsewhere() const { return start_.checkpoint && !config_.resume.path.empty() && *start_.checkpoint == config_.resume.path; }
  bool is_from_deepspeed() const { return start_.checkpoint && !recovery_.record && is_deepspeed_checkpoint(*start_.checkpoint); }
  bool is_from_another_run() const {
    std::error_code none;
    return start_.checkpoint && !recovery_.record && !fs::equivalent(run_of(*start_.checkpoint), folder_->path(), none);
  }
  void tell_of_deepspeed() {
    if (!peers_.first()) return;
    messages_.log(
        fmt::format("{} saved this checkpoint; from row {} on, rows come in Spillway's order, with the learning rates of this run",
                    deepspeed_text(*start_.checkpoint), progress_.cursor));
    const double rows = static_cast<double>(progress_.cursor) / static_cast<double>(progress_.step);
    if (rows != static_cast<double>(config_.global_batch()))
      messages_.warn(
          fmt::format("a step of DeepSpeed's run had {:.6g} rows, a step of this run has {}: --global-batch-size sets the number", rows,
                      config_.global_batch()));
  }

  // Reports that the run has already reached its last step.
  void tell_of_end() const {
    if (messages_.quiet() && !messages_.json()) return;
    const nlohmann::ordered_json all = {{"finished", true}, {"run", config_.out}, {"step", progress_.step}, {"steps", *config_.steps}};
    messages_.result(messages_.json() ? all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
                                      : fmt::format("finished: {} is at step {} of {}; raise --steps to go on", config_.out, progress_.step,
                                                    *config_.steps));
  }

  void tell_of_start() const {
    std::string from = start_.left.empty() ? "from the last checkpoint" : "from the last checkpoint that is not damaged";
    if (recovery_.record) from = "from the state on nvme";
    if (!recovery_.record && is_of_elsewhere()) from = "from " + start_.checkpoint->string();
    const std::string head = progress_.step > 0
                                 ? fmt::format("continues at step {} of {} {} ({})", progress_.step, *config_.steps, from, config_.out)
                                 : fmt::format("new run of {} steps ({})", *config_.steps, config_.out);
    messages_.log(head + "\n" + opening_text(*session_, config_, *data_, weights_from()));
  }

  // Says where the weights of the first step come from.
  std::string weights_from() const {
    if (recovery_.record) return "read from the state on nvme";
    if (start_.checkpoint) return "read from " + start_.checkpoint->string();
    const ModelSource& source = session_->source();
    const auto& parameters = session_->model().parameters;
    if (std::ranges::any_of(parameters, [](const auto& one) { return bool(one->given); })) return "from the program";
    const std::string drawn = fmt::format("random (seed {})", config_.seed);
    if (!source.has_weights || config_.from_scratch) return drawn;
    const std::string read = "read from " + source.folder->string();
    return source.config.lora && !source.adapter ? read + ", adapters " + drawn : read;
  }

  // Reports a changed number of steps, because the change stretches the learning-rate curve over the remaining steps.
  void tell_of_schedule() const {
    const i64 before = progress_.schedule_steps, now = config_.curve_steps();
    if (progress_.step == 0 || before == 0 || before == now || !optim::ends(config_.lr_schedule)) return;
    messages_.log(config_.keep_schedule
                      ? fmt::format("the learning-rate schedule still spans {} steps, then its last rate holds (--keep-schedule)", before)
                      : fmt::format("--steps was {} and is now {}: the coming steps follow a learning-rate schedule over {} steps; "
                                    "--keep-schedule keeps the old schedule",
                                    before, now, now));
  }

  void tell_of_damaged() {
    for (; told_ < start_.left.size(); ++told_)
      messages_.warn(fmt::format("a checkpoint is damaged, the run goes on without it: {}", start_.left[told_].second));
  }

  // Loads the weights and the state from which the run starts. A damaged checkpoint is found while it is read, before the
  // run folder is changed. If the run does not resume from the state on nvme, that state is overwritten from here on.
  void load() {
    for (bool first = true;; first = false) {
      peers_.together([&] {
        if (!start_.checkpoint && !start_.left.empty()) nothing_whole(config_, start_);
        if (first) session_->rank().state().forget_recovered();
      });
      const std::optional<fs::path> tried = start_.checkpoint;
      const Working working(messages_, start_.checkpoint ? "reading " + start_.checkpoint->string() : "making the first weights");
      try {
        FreezeChange change;
        peers_.together([&] { change = load_start(*session_, config_, start_); });
        if (!change.thawed.empty()) progress_.thawed.push_back({progress_.updates, change.thawed});
        for (const std::string& note : notes_of(change)) messages_.log(note);
        return;
      } catch (const AgreedError& e) {
        if (config_.resume.kind != Resume::Kind::automatic || !tried || (e.code() != ErrorCode::data && e.code() != ErrorCode::io)) throw;
        leave_damaged();
        if (start_.checkpoint == tried) throw;  // no other checkpoint was found, so the error has another cause and is thrown again
      }
      tell_of_damaged();
      settle_rows();
      tell_of_start();
    }
  }

  void begin_run() {
    if (peers_.first()) {
      for (const auto& [checkpoint, wrong] : start_.left)
        messages_.log("the damaged checkpoint was renamed and kept: " + set_checkpoint_aside(checkpoint, "damaged").string());
      for (const fs::path& later : not_before(folder_->path(), recovery_.record ? std::nullopt : start_.checkpoint, progress_.step))
        messages_.warn("the run no longer resumes from this checkpoint, which was renamed and kept: " +
                       set_checkpoint_aside(later, "left").string());
    }
    TrainConfig asked = config_;
    asked.resume = asked_;
    asked.allow_change.clear();  // --allow-change is not stored, because from now on the new values are the run's own
    contents_.thawed = progress_.thawed;
    folder_->write_contents(to_json(contents_));
    folder_->write_config(to_json(asked));
    const i64 last_line = folder_->open_metrics(progress_.step);
    for (const std::string& said : folder_->watch({config_.run->tensorboard, config_.run->metrics_csv}, last_line, to_json(asked)))
      messages_.warn(said);
    if (recovery_.record && peers_.first() && last_line + 1 < progress_.step) {
      messages_.warn(
          fmt::format("metrics.jsonl has no lines for steps {} to {}: an earlier start resumed before them and removed the lines",
                      last_line + 1, progress_.step - 1));
    }
    if (recovery_.record && last_line < progress_.step) {
      if (const std::string said = folder_->metrics_line(recovery_.record->metrics_line); !said.empty()) messages_.warn(said);
    }
  }

  // Runs the training steps. After an error the files on nvme are kept for a restart.
  int train() try {
    progress_.data = contents_.find("data");
    if (is_from_another_run()) progress_.standing = {};  // validations of another run say nothing about this run
    progress_.rules = kNumberRules;
    peers_.together([&] {
      parallel::ModelState& state = session_->rank().state();
      if (!recovery_.record) state.commit(state.generation(), to_record(progress_, numbers_hash(config_), ""));
    });
    std::optional<Trace> trace;
    if (config_.run->trace) trace.emplace(*config_.run->trace, config_.run->trace_steps, watch_, peers_);
    return TrainingLoop(config_, *session_, *data_, *folder_, messages_, peers_, progress_, trace ? &*trace : nullptr, callbacks_).run();
  } catch (...) {
    session_->keep_scratch();
    throw;
  }

  TrainConfig config_;
  Messages& messages_;
  const Peers& peers_;
  const TrainCallbacks& callbacks_;
  const OwnParts& own_;
  ModelSource source_;
  PreparationProgress preparation_;
  std::unique_ptr<const RunData> data_;
  RunContents contents_;           // contents of the files that this start reads
  std::vector<std::string> same_;  // keys whose values differ only in spelling from those of the run in --out
  std::vector<std::string> contents_notes_;
  LeftState left_state_;
  std::optional<TrainConfig>* first_ = nullptr;
  Start start_;
  size_t told_ = 0;  // number of damaged checkpoints in start_.left that were reported so far
  Progress progress_;
  i64 ranks_before_ = 1;
  Resume asked_;           // the value of --resume as the user gave it
  Recovery recovery_;      // the state on nvme, or why it is not used
  std::string attention_;  // names of cuDNN's attention engines; empty without cuDNN
  DiskWatch watch_;        // must outlive the session, whose I/O engine calls it
  parallel::MeshEnds ends_;
  std::optional<Session> session_;
  std::optional<RunFolder> folder_;
};

}  // namespace

int run_train(const TrainConfig& config, Messages& messages, const Peers& peers, const TrainCallbacks& callbacks, const OwnParts& own) {
  return run_on_ranks(peers, [&] {
    LineMessages silent;
    Messages& heard = peers.first() ? messages : silent;
    std::optional<TrainConfig> first;
    const int status = RankRun(config, heard, peers, callbacks, own).run(&first);
    if (!first) return status;
    const int saved = RankRun(*first, silent, peers, {}, own).run();
    return saved == 0 ? RankRun(config, heard, peers, callbacks, own).run() : saved;
  });
}

}  // namespace spillway::trainer
