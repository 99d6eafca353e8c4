#include "app/report/history.h"

#include <algorithm>

#include "trainer/events/lines.h"

namespace spillway::app {
namespace {

using offload::Tier;

constexpr i64 kMostBounds = 240;  // most pieces of the strip that shows which resource limited which steps
constexpr double kMostSum = 9e18;
constexpr i64 kWarmUp = 2;  // number of first steps of a process that the means leave out, as Audit does

i64 added(i64 sum, double more) { return static_cast<i64>(std::min(static_cast<double>(sum) + std::max(0.0, more), kMostSum)); }

// Kept decides which lines of metrics.jsonl count. If a line has an earlier step than the line before it,
// the run was restarted from that step. All lines above it for that step and later ones no longer count.
class Kept {
 public:
  void line(i64 number, i64 step) {
    if (step <= highest_) backs_.push_back({number, step});
    highest_ = step;
    first_ = first_ == 0 ? step : std::min(first_, step);
  }
  // Must be called after the last line(). Replaces the step of each jump back by the lowest step to which it or any later jump went back.
  void finish() {
    for (size_t n = backs_.size(); n-- > 1;) backs_[n - 1].second = std::min(backs_[n - 1].second, backs_[n].second);
  }
  // Returns whether a line counts. Must be called in ascending order of line numbers.
  bool counts(i64 number, i64 step) {
    while (next_ < backs_.size() && backs_[next_].first <= number) ++next_;
    return next_ == backs_.size() || step < backs_[next_].second;
  }
  i64 first() const { return first_; }
  i64 last() const { return highest_; }

 private:
  std::vector<std::pair<i64, i64>> backs_;  // jumps back to an earlier step, as pairs of line number and step
  size_t next_ = 0;
  i64 first_ = 0, highest_ = 0;
};

// Columns holds the indices of the columns that are read from every line. They are looked up by name only once.
struct Columns {
  size_t tokens = metric("tokens"), positions = metric("positions"), samples = metric("samples"), skipped = metric("skipped"),
         clipped = metric("clipped");
  size_t redo = metric("redo"), step_ms = metric("step_ms"), predicted_ms = metric("predicted_ms"), began = metric("began_at_step");
  size_t exchanged = metric("exchanged_bytes"), sent = metric("sent_bytes"), read = metric("read_bytes.device"),
         written = metric("written_bytes.device");
  std::vector<std::pair<std::string, size_t>> phases;
  std::array<size_t, parallel::kResources> bound{};
  size_t disk = metric("phase_ms.disk"), disk_read = metric("phase_ms.disk_read"), disk_write = metric("phase_ms.disk_write");

  Columns() {
    for (const std::string& name : phase_names()) phases.emplace_back(name, metric("phase_ms." + name));
    for (size_t r = 0; r < bound.size(); ++r)
      bound[r] = metric("phase_ms.bound_" + std::string(to_string(static_cast<parallel::Resource>(r))));
  }
};

class Building {
 public:
  Building(History& history, const Kept& kept, i64 buckets, const std::optional<RunPlan>& plan) : h_(history), plan_(plan) {
    h_.series.assign(metric_names().size(), Series(kept.first(), kept.last(), buckets));
    strip_ = std::max<i64>(1, (kept.last() - kept.first()) / kMostBounds + 1);
    if (plan_) cost_.phase_ms = plan_->phase_ms;
    h_.first_step = kept.first();
  }

  void line(const MetricsLine& line) {
    const i64 step = line.step();
    ++h_.steps;
    h_.parts_lost += h_.last_step > 0 ? step - h_.last_step - 1 : 0;
    h_.last_step = step;
    for (size_t c = 0; c < line.values.size(); ++c) {
      h_.measures[c].add(step, line[c]);
      h_.series[c].add(step, line[c]);
    }
    h_.tokens = added(h_.tokens, line.or_else(c_.tokens, 0));
    h_.positions = added(h_.positions, line.or_else(c_.positions, line.or_else(c_.tokens, 0)));
    h_.samples = added(h_.samples, line.or_else(c_.samples, 0));
    h_.seconds += line.or_else(c_.step_ms, 0) / 1e3;
    h_.skipped += line.or_else(c_.skipped, 0) != 0;
    h_.clipped += line.or_else(c_.clipped, 0) != 0;
    h_.redo += line.or_else(c_.redo, 0) != 0;
    h_.not_finite += line.not_finite;
    bound(step, line.bound_by);
    process(line);
    h_.last = line;
  }

  void finish() {
    for (Series& series : h_.series) series.finish();
    end_strip();
    const double steps = static_cast<double>(std::max<i64>(1, h_.process_steps));
    for (auto& [name, ms] : h_.phase_ms) ms /= steps;
    for (size_t t = 0; t < offload::kTiers; ++t) h_.read[t] /= steps, h_.written[t] /= steps;
    h_.exchanged /= steps;
    h_.sent /= steps;
  }

 private:
  void bound(i64 step, const std::string& by) {
    if (by.empty()) return;
    ++h_.bound_steps[by];
    if ((step - h_.first_step) / strip_ != strip_at_) end_strip();
    if (in_strip_.empty()) strip_first_ = step;
    strip_at_ = (step - h_.first_step) / strip_;
    strip_last_ = step;
    ++in_strip_[by];
  }

  void end_strip() {
    if (in_strip_.empty()) return;
    const std::string by = std::ranges::max_element(in_strip_, {}, [](const auto& e) { return e.second; })->first;
    in_strip_.clear();
    if (!h_.bounds.empty() && h_.bounds.back().by == by) {
      h_.bounds.back().last = strip_last_;
    } else {
      h_.bounds.push_back({strip_first_, strip_last_, by});
    }
  }

  // Adds a line to the means of its process. If a process died in a step, that step's line has no time and does not count.
  void process(const MetricsLine& line) {
    if (!line.has(c_.step_ms) || !line.has(c_.began)) return;
    const i64 began = static_cast<i64>(line[c_.began]);
    if (h_.starts.empty() || h_.starts.back() != began) {
      h_.starts.push_back(began);
      h_.audit = {};
      begin_means();
      warmed_up_ = 0;
    }
    if (h_.process_steps == 1 && warmed_up_ < kWarmUp) {
      begin_means();
      ++warmed_up_;
    }
    ++h_.process_steps;
    StepSample sample;
    for (const auto& [name, column] : c_.phases) {
      if (line.has(column)) sample.phases[name] = line[column];
    }
    for (const auto& [name, ms] : sample.phases) h_.phase_ms[name] += ms;
    for (size_t t = 0; t < offload::kTiers; ++t) {
      h_.read[t] += line.or_else(c_.read + t, 0);
      h_.written[t] += line.or_else(c_.written + t, 0);
    }
    h_.exchanged += line.or_else(c_.exchanged, 0);
    h_.sent += line.or_else(c_.sent, 0);
    if (plan_ && plan_->began_at_step == began) audit(line, sample);
  }

  void begin_means() {
    h_.phase_ms.clear();
    h_.read = h_.written = {};
    h_.exchanged = h_.sent = 0;
    h_.process_steps = 0;
  }

  void audit(const MetricsLine& line, StepSample& sample) {
    sample.seconds = line[c_.step_ms] / 1e3;
    for (size_t r = 0; r < c_.bound.size(); ++r) {
      sample.account.chain_s[r] = line.or_else(c_.bound[r], 0) / 1e3;
      sample.account.seconds += sample.account.chain_s[r];
    }
    for (size_t t = 0; t < offload::kTiers; ++t) {
      sample.moved.read[t] = added(0, line.or_else(c_.read + t, 0));
      sample.moved.written[t] = added(0, line.or_else(c_.written + t, 0));
    }
    const auto nvme = static_cast<size_t>(Tier::nvme);
    sample.disk = {.read_s = line.or_else(c_.disk_read, 0) / 1e3,
                   .write_s = line.or_else(c_.disk_write, 0) / 1e3,
                   .either_s = line.or_else(c_.disk, 0) / 1e3,
                   .read_bytes = sample.moved.read[nvme],
                   .written_bytes = sample.moved.written[nvme]};
    sample.planned = plan_->moved;
    cost_.seconds = line.or_else(c_.predicted_ms, plan_->step_s * 1e3) / 1e3;
    sample.predicted = &cost_;
    h_.audit.step(sample);
  }

  History& h_;
  const std::optional<RunPlan>& plan_;
  const Columns c_;
  StepCost cost_;
  i64 warmed_up_ = 0;  // number of warm-up steps of the last process that do not count
  i64 strip_ = 1, strip_at_ = -1, strip_first_ = 0, strip_last_ = 0;
  std::map<std::string, i64> in_strip_;
};

bool whole(const Lines::Line& text, MetricsLine& line) { return !text.too_long && parse_metrics_line(text.text, line); }

void note_damage(History& history, const Lines::Line& text) {
  if (!text.ends) {
    history.torn = true;
    return;
  }
  if (text.text.empty() && !text.too_long) return;
  ++history.damaged;
  if (history.damaged_lines.size() < History::kNamed) history.damaged_lines.push_back(text.number);
}

}  // namespace

History read_history(const std::filesystem::path& file, i64 buckets, const std::optional<RunPlan>& plan) {
  History history;
  Lines lines(file);
  Lines::Line text;
  MetricsLine line;
  Kept kept;
  while (lines.next(text)) {
    if (whole(text, line)) {
      kept.line(text.number, line.step());
    } else {
      note_damage(history, text);
    }
  }
  kept.finish();
  Building building(history, kept, buckets, plan);
  lines.rewind();
  while (lines.next(text)) {
    if (!whole(text, line)) continue;
    if (kept.counts(text.number, line.step())) {
      building.line(line);
    } else {
      ++history.run_again;
    }
  }
  building.finish();
  return history;
}

}  // namespace spillway::app
