#include "trainer/run/loop.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "trainer/node/stop.h"
#include "trainer/node/working.h"
#include "trainer/ranks/rank_report.h"
#include "trainer/run/metrics.h"
#include "trainer/run/plan_record.h"
#include "trainer/run/weight_histograms.h"
#include "trainer/settings/run_settings.h"
#include "trainer/settings/update_rule.h"
#include "trainer/text/generation.h"

namespace spillway::trainer {
namespace {

constexpr i64 kMostNonfinite = 20;  // the run ends after this many steps in a row with non-finite numbers
constexpr i64 kSampledTokens = 128;
// after each of the first kAnnounced steps, the text that answers a signal is updated with the measured step time
constexpr i64 kAnnounced = 20;

}  // namespace

TrainingLoop::TrainingLoop(const TrainConfig& config, Session& session, const RunData& data, RunFolder& folder, Messages& messages,
                           const Peers& peers, Progress progress, Trace* trace, TrainCallbacks callbacks)
    : config_(config),
      session_(session),
      data_(data),
      folder_(folder),
      messages_(messages),
      peers_(peers),
      trace_(trace),
      callbacks_(std::move(callbacks)),
      progress_(progress),
      numbers_hash_(numbers_hash(config)),
      first_step_(progress.step),
      first_tokens_(progress.tokens),
      start_(Clock::now()),
      last_save_(start_),
      limit_(seconds_left(config)),
      model_flops_(model_flops(session.chosen(), session.model())),
      matmul_flops_(measured_flops(load_calibration(), session.chosen())),
      saves_(session, folder, messages, peers, config.run->keep, progress.step),
      accounts_(session),
      recorder_(folder.path(), peers, progress.step, *config.steps) {
  if (config.precision != Precision::fp16) {
    progress_.loss_scale.reset();
  } else if (!progress_.loss_scale) {
    progress_.loss_scale.emplace();
  }
  if (config.run->profile) profile_.emplace();
  if (session.rank().plan().on_gpu()) steps_ahead_.emplace(*data.training, MemoryPool::heap());
  find_best();
  saves_.on_saved([this](i64 step) {
    if (to_keep_ && to_keep_->step == step) name_best();
    if (callbacks_.on_save && peers_.first()) callbacks_.on_save({step, checkpoint_path(folder_.path(), step)});
  });
  if (!config.keep_schedule || progress_.schedule_steps == 0) progress_.schedule_steps = config.curve_steps();
}

i64 TrainingLoop::positions_per_step() const { return data_.training->windows_per_step() * *config_.sequence_length; }

int TrainingLoop::run() {
  StepReport report;
  set_answers("this step");
  warn_of(recorder_.plan(record_of(session_, peers_.ranks(), positions_per_step(), first_step_)));
  if (const auto status = make_up_validation()) return *status;
  if (const std::string why = is_over() ? "" : why_not_begun(); !why.empty()) {
    messages_.log(why);
    return kStoppedStatus;
  }
  while (!is_over()) {
    report = stepping();
    if (progress_.step - first_step_ <= kAnnounced || saves_.saved_step() != answered_step_)
      set_answers("this step (about " + format_duration(report.seconds) + ")");
    report_step(progress_.step);
    Wanted now = wanted(report);
    if (progress_.standing.owes_validation && !now.ends()) {
      validate(report);
      now = wanted(report);
    }
    judge_weights(report);
    write_metrics(report);
    if (profile_) profile_->step(session_.rank(), session_.model(), report.seconds);
    if (trace_) trace_->step(progress_.step, session_.rank());
    warn_of(recorder_.step(progress_.step, session_.rank()));
    show_progress(report);
    if (!now.ends()) sample(), write_histograms();
    saves_.stepped(report.seconds);
    if (const std::string rereads = session_.rank().state().take_rereads(); !rereads.empty()) messages_.warn(rereads);
    tell(report);
    if (now.ends()) return stop(why_stopped(now));
    owes_save_ |= now.save || (to_keep_ && to_keep_->step == progress_.step);
    if (owes_save_ && !progress_.standing.unsound) save(false);
  }
  end(report);
  return 0;
}

// Takes a step. A progress line is shown during the first step and during long steps.
TrainingLoop::StepReport TrainingLoop::stepping() {
  constexpr double kLong_s = 2;
  std::optional<Working> working;
  if (step_seconds_ == 0 || step_seconds_ > kLong_s)
    working.emplace(messages_, fmt::format("step {} of {}", progress_.step + 1, *config_.steps));
  return step();
}

void TrainingLoop::tell(const StepReport& r) const {
  if (!peers_.first()) return;
  if (callbacks_.on_step) {
    callbacks_.on_step({progress_.step, *config_.steps, r.result.loss, r.result.grad_norm, r.learning_rate, r.seconds, r.result.data_tokens,
                        positions_per_step(), r.result.skipped});
  }
  tell_validation(r);
}

TrainingLoop::Wanted TrainingLoop::wanted(StepReport& report) const {
  const bool more = progress_.step < *config_.steps || progress_.standing.owes_validation;
  const double stop = stop_requested(), time_up = more && time_is_up(), save = more && checkpoint_due(report);
  const double asked = more && is_asked_to_stop();
  const std::vector<std::vector<double>> all =
      peers_.gather(std::vector{stop, time_up, save, report.accounts.meeting_s / report.seconds, asked});
  const auto any = [&](size_t what) { return std::ranges::any_of(all, [&](const auto& rank) { return rank[what] != 0; }); };
  const auto slowest = std::ranges::min_element(all, {}, [](const auto& rank) { return rank[3]; });
  report.slowest_rank = static_cast<int>(slowest - all.begin());
  report.slowest_wait = (*slowest)[3];
  return {any(0), any(1), any(2), any(4)};
}

parallel::StepSettings TrainingLoop::step_settings() const {
  parallel::StepSettings settings;
  settings.update.settings = update_settings(config_);
  settings.update.learning_rate = learning_rate();
  settings.update.own_rates_of = session_.group_of();
  for (const OptimizerGroup& group : update_groups(config_))
    settings.update.own_rates.push_back({learning_rate(group.learning_rate.value_or(*config_.learning_rate)), group.weight_decay});
  count_own_updates(settings.update, progress_.thawed, session_.model());
  settings.update.t = progress_.updates + 1;
  settings.update.isa = config_.isa;
  settings.update.average_decay = config_.ema.value_or(0);
  settings.gradient_clipping = config_.gradient_clipping;
  if (progress_.loss_scale) settings.loss_scale = progress_.loss_scale->scale;
  settings.random = RandomKey{config_.seed}.derive("training");
  if (config_.run->detect_anomaly) {
    const std::string rank = peers_.ranks() > 1 ? ", " + peers_.name(peers_.rank()) : "";
    settings.detect_anomaly = fmt::format("step {}{}", progress_.step + 1, rank);
  }
  settings.record = [this](const parallel::StepResult& result) { return record(result); };
  return settings;
}

TrainingLoop::StepReport TrainingLoop::step() {
  StepReport report;
  const auto begin = Clock::now();
  accounts_.begin();
  parallel::StepSettings settings = step_settings();
  if (profile_ && !session_.rank().plan().on_gpu()) settings.op_times = &profile_->op_times();
  report.learning_rate = settings.update.learning_rate;
  report.samples = data_.training->rows_of_step(progress_.cursor).count();
  report.result = take_step(settings);
  report.seconds = step_seconds_ = seconds_since(begin);
  ahead_.step.add(report.seconds);
  stepping_s_ += report.seconds;
  if (!first_loss_) first_loss_ = report.result.loss;
  report.accounts = accounts_.end(report.seconds);
  progress_ = after(report.result);
  counted_targets_ += report.result.counted_targets;
  if (report.result.skipped) report.why_skipped = why_skipped(report.result);
  // --detect-anomaly checked the result of every op, and all were finite, so a sum of results must
  // have overflowed. With a loss scale above 1 that is no anomaly, because the scale was too large.
  if (config_.run->detect_anomaly && report.result.skipped && settings.loss_scale <= 1) {
    saves_.finish(false);  // after finish(), the message below names the newest checkpoint
    throw AgreedError(ErrorCode::numbers,
                      fmt::format("[anomaly] step {}: {}, although the result of every op is finite: a sum over micro-batches or ranks, or "
                                  "rounding, overflowed; {}",
                                  progress_.step, report.why_skipped, what_stands()));
  }
  if (progress_.standing.skipped_in_a_row >= kMostNonfinite) {
    diverge(fmt::format("[train] the gradient norm was not finite in {} steps in a row, the last at step {}: {}", kMostNonfinite,
                        progress_.step, report.why_skipped),
            progress_.loss_scale ? ", or --precision bf16, because the largest number of fp16 is 65504 and no loss scale was small enough"
                                 : "");
  }
  return report;
}

parallel::StepResult TrainingLoop::take_step(const parallel::StepSettings& settings) try {
  return session_.rank().train_step([this] { return next_batch(); }, settings);
} catch (const Error& error) {
  if (error.code() != ErrorCode::numbers) throw;
  throw Error(error.code(), fmt::format("{}\n  {}", error.what(), what_stands()));
}

StepBatch TrainingLoop::next_batch() {
  return steps_ahead_ ? steps_ahead_->step(progress_.cursor) : data_.training->step(progress_.cursor);
}

double TrainingLoop::learning_rate(double highest) const {
  optim::Schedule schedule = schedule_over(config_, progress_.schedule_steps);
  schedule.learning_rate = highest;
  return optim::learning_rate(schedule, progress_.step);
}

Progress TrainingLoop::after(const parallel::StepResult& result) const {
  Progress next = progress_;
  ++next.step;
  next.cursor = data_.training->cursor_after(progress_.cursor);
  next.tokens += result.data_tokens;
  next.updates += !result.skipped;
  if (next.loss_scale)
    next.loss_scale = next.loss_scale->after(!result.skipped, config_.loss_scale_window.value_or(optim::kLossScaleInterval));
  next.standing.skipped_in_a_row = result.skipped ? next.standing.skipped_in_a_row + 1 : 0;
  next.standing.unsound = !std::isfinite(result.loss) || (result.skipped && !next.loss_scale);
  next.standing.owes_validation = validates_after(next.step);
  return next;
}

std::string TrainingLoop::record(const parallel::StepResult& result) const {
  const Progress next = after(result);
  return to_record(
      next, numbers_hash_,
      brief_json(next.step, result, learning_rate(), positions_per_step(), data_.training->rows_of_step(progress_.cursor).count()));
}

void TrainingLoop::write_metrics(const StepReport& r) {
  parallel::Rank& rank = session_.rank();
  MetricsRow row;
  row.step = progress_.step;
  row.result = r.result;
  row.learning_rate = r.learning_rate;
  row.positions = positions_per_step();
  row.samples = r.samples;
  row.seconds = r.seconds;
  row.validation_loss = r.validation_loss;
  row.validation_accuracy = r.validation_accuracy;
  row.moved = r.accounts.moved;
  row.ranks = peers_.ranks();
  row.slowest_rank = r.slowest_rank;
  row.slowest_wait = r.slowest_wait;
  row.phases = r.accounts.phases;
  row.tier_bytes = {session_.device_pool().used_bytes(), session_.host_pool().used_bytes(), rank.state().nvme_bytes()};
  row.peak_bytes = {session_.device_pool().peak_bytes(), session_.host_pool().peak_bytes(), rank.state().nvme_bytes()};
  row.wear = last_wear_ = wear();
  row.began_at_step = first_step_;
  row.flops_per_s = model_flops_ / r.seconds;
  if (matmul_flops_) row.matmul_share = row.flops_per_s / *matmul_flops_;
  row.predicted_ms = r.accounts.predicted->seconds * 1e3;
  row.bound_by = to_string(r.accounts.account.bound_by());
  warn_of(folder_.metrics_line(to_json(row)));
}

void TrainingLoop::show_progress(const StepReport& r) {
  if (progress_.step % config_.run->log_every != 0 && progress_.step != *config_.steps && !r.validation_loss) return;
  const double per_step = seconds_since(start_) / static_cast<double>(progress_.step - first_step_);
  // The least important numbers come last in the progress line, because a narrow terminal may cut off the end of the line.
  const bool padded = positions_per_step() > r.result.data_tokens;
  const std::string with_padding =
      padded ? fmt::format(" ({:.0f} with padding)", static_cast<double>(positions_per_step()) / r.seconds) : "";
  std::string line =
      fmt::format("step {}/{}  loss {:.4f}  left {}  {:.0f} {}/s{}  norm {:.3f}  lr {:.2e}", progress_.step, *config_.steps, r.result.loss,
                  format_duration(per_step * static_cast<double>(*config_.steps - progress_.step)),
                  static_cast<double>(r.result.data_tokens) / r.seconds, unit(), with_padding, r.result.grad_norm, r.learning_rate);
  messages_.progress(line);
  folder_.log(line);
  if (r.result.skipped) stands("  step skipped: " + r.why_skipped);
  show_validation(r);
}

// Prints a line below the progress line, which stays on the screen.
void TrainingLoop::stands(const std::string& line) {
  messages_.end_progress();
  messages_.log(line);
}

std::string TrainingLoop::why_skipped(const parallel::StepResult& result) const {
  std::vector<double> mine{static_cast<double>(result.own_loss_finite)};
  mine.insert(mine.end(), result.not_finite.begin(), result.not_finite.end());
  std::vector<std::string> losses;
  std::set<size_t> parameters;
  const std::vector<std::vector<double>> all = peers_.gather(mine);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].front() == 0) losses.push_back(peers_.name(static_cast<int>(r)));
    for (const double id : std::span(all[r]).subspan(1)) parameters.insert(static_cast<size_t>(id));
  }
  // the reason if all losses and gradients are finite: the sum of squared gradients overflowed
  std::string why = "the gradient norm is not finite";
  if (!losses.empty()) {
    why = all.size() == 1 ? "the loss is not finite" : fmt::format("the loss of {} is not finite", fmt::join(losses, ", "));
  } else if (!parameters.empty()) {
    const size_t more = parameters.size() - 1;
    why = fmt::format("gradients in a tile of {} are not finite", session_.model().parameters[*parameters.rbegin()]->name);
    if (more > 0) why += fmt::format(", which backward computed first; the same holds for {} more parameter{}", more, more == 1 ? "" : "s");
  }
  // In fp16 it is normal that the first steps search for the largest loss scale without overflow.
  return progress_.loss_scale ? fmt::format("gradients exceed the range of fp16, the loss scale is {:.10g} from now on ({})",
                                            progress_.loss_scale->scale, why)
                              : why;
}

void TrainingLoop::sample() {
  if (config_.run->sample_every == 0 || progress_.step % config_.run->sample_every != 0) return;
  accounts_.settle();
  const auto tokenizer = tokenizer_of(config_, session_.source(), false);
  const std::string prompt = config_.run->prompt.empty() ? "\n" : config_.run->prompt;
  std::vector<i32> tokens;
  std::optional<Working> working(std::in_place, messages_, "writing a sample");
  const TextRow row{data::encode_with_around(*tokenizer, prompt), {.seed = config_.seed}};
  const auto begin = Clock::now();
  auto last = begin;
  generate_tokens(session_.rank(), {row}, kSampledTokens, session_.source().config.positions, [&](size_t, i32 id) {
    tokens.push_back(id);
    ahead_.token.add(seconds_since(std::exchange(last, Clock::now())));
    return peers_.most({breaks_off(ahead_.token.seconds())})[0] == 0;  // the sample ends early if any rank has to stop or save
  });
  if (std::ssize(tokens) == kSampledTokens) ahead_.sample.add(seconds_since(begin));
  working.reset();
  messages_.end_progress();
  const std::string text = prompt + tokenizer->decode(tokens);
  messages_.log("sample: " + text);
  warn_of(folder_.sample(progress_.step, text));
}

void TrainingLoop::write_histograms() {
  if (config_.run->histograms_every == 0 || progress_.step % config_.run->histograms_every != 0) return;
  accounts_.settle();
  const Working working(messages_, "counting histograms");
  const auto begin = Clock::now();
  i64 not_finite = 0;
  std::vector<std::string> of;
  weight_histograms(session_.model(), session_.rank(), peers_, [&](const nn::Parameter& parameter, const Histogram& histogram) {
    not_finite += histogram.not_finite();
    if (histogram.not_finite() > 0) of.push_back(parameter.name);
    warn_of(folder_.histogram(progress_.step, parameter.name, histogram));
  });
  ahead_.histograms.add(seconds_since(begin));
  if (of.empty()) return;
  messages_.warn(fmt::format("{} weight{} not finite after step {}, in {} parameter{} (the first is {}): histograms leave such weights out",
                             not_finite, not_finite == 1 ? " is" : "s are", progress_.step, of.size(), of.size() == 1 ? "" : "s", of[0]));
}

void TrainingLoop::warn_of(const std::string& said) const {
  if (!said.empty()) messages_.warn(said);
}

Wear TrainingLoop::wear() const {
  const i64 steps = progress_.step - first_step_;
  return wear_of(accounts_.moved().written[static_cast<size_t>(Tier::nvme)], steps, progress_.tokens - first_tokens_, seconds_since(start_),
                 config_.run->endurance_bytes, drives_worth(session_.nvme().shares.weights));
}

}  // namespace spillway::trainer
