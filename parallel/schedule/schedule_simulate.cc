#include "parallel/schedule/schedule_simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace spillway::parallel {
namespace {

// Names a result that another rank may wait for: a stage's output, or the gradient of the stage's input.
struct Product {
  bool gradient = false;
  u16 stage = 0, micro_batch = 0;
  bool operator==(const Product&) const = default;
};

std::string to_string(const Product& p) { return fmt::format("{}{}{}", p.stage, p.gradient ? "B" : "F", p.micro_batch); }

class Simulator {
 public:
  Simulator(const Schedule& schedule, const ScheduleCosts& costs) : schedule_(schedule), costs_(costs), ranks_(schedule.rows.size()) {
    const auto products = static_cast<size_t>(schedule.stages()) * static_cast<size_t>(schedule.micro_batches);
    for (auto& ends : ends_) ends.assign(products, kNotYet);
    times_.actions.resize(ranks_.size());
    times_.ranks.resize(ranks_.size());
  }

  ScheduleTimes run() {
    for (size_t r = ranks_.size(); r-- > 0;) awake_.push_back(r);
    while (!awake_.empty()) {
      const size_t rank = awake_.back();
      awake_.pop_back();
      go_on(rank);
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].waits_for) refuse_circle(r);
      times_.makespan = std::max(times_.makespan, times_.ranks[r].end);
    }
    return std::move(times_);
  }

 private:
  static constexpr double kNotYet = -1;
  struct Rank {
    size_t next = 0;
    double now = 0, held = 0;
    bool started = false;
    std::optional<Product> waits_for;
  };

  double& end_of(const Product& p) {
    return ends_[p.gradient][static_cast<size_t>(p.stage) * static_cast<size_t>(schedule_.micro_batches) + p.micro_batch];
  }

  std::optional<Product> need_of(const Action& a) const {
    if (a.kind == ActionKind::forward && a.stage > 0) return Product{false, static_cast<u16>(a.stage - 1), a.micro_batch};
    const bool backward = a.kind == ActionKind::backward || a.kind == ActionKind::backward_input;
    if (backward && a.stage + 1 < schedule_.stages()) return Product{true, static_cast<u16>(a.stage + 1), a.micro_batch};
    return std::nullopt;
  }

  // Runs the actions of the rank's row until one has to wait for another rank.
  void go_on(size_t r) {
    const ScheduleRow& row = schedule_.rows[r];
    Rank& rank = ranks_[r];
    rank.waits_for.reset();
    times_.actions[r].reserve(row.size());
    while (rank.next < row.size()) {
      const size_t count = row[rank.next].overlaps_next ? 2 : 1;
      const auto start = can_start(r, count);
      if (!start) return;
      rank.now = *start;
      for (size_t i = 0; i < count; ++i) take(r, row[rank.next++]);
    }
  }

  // Returns when the next cell, which has `count` actions, can start, or nothing if one of the actions still lacks an input.
  std::optional<double> can_start(size_t r, size_t count) {
    Rank& rank = ranks_[r];
    double start = rank.now;
    for (size_t i = 0; i < count; ++i) {
      const auto need = need_of(schedule_.rows[r][rank.next + i]);
      if (!need) continue;
      const double end = end_of(*need);
      if (end == kNotYet) {
        rank.waits_for = need;
        return std::nullopt;
      }
      start = std::max(start, end + (schedule_.rank_of[need->stage] == r ? 0 : costs_.transfer));
    }
    return start;
  }

  void take(size_t r, const Action& a) {
    Rank& rank = ranks_[r];
    RankTimes& times = times_.ranks[r];
    const double start = rank.now, cost = costs_.of(a.stage).of(a.kind);
    rank.now += cost;
    times_.actions[r].push_back({start, rank.now});
    if (a.kind == ActionKind::idle) return;
    if (!rank.started) times.start = start;
    rank.started = true;
    times.end = rank.now;
    times.busy += cost;
    count_activations(rank, times, a.kind);
    if (a.kind == ActionKind::forward) publish({false, a.stage, a.micro_batch}, rank.now, a.stage + 1);
    if (a.kind == ActionKind::backward || a.kind == ActionKind::backward_input)
      publish({true, a.stage, a.micro_batch}, rank.now, a.stage - 1);
  }

  void count_activations(Rank& rank, RankTimes& times, ActionKind kind) const {
    if (kind == ActionKind::forward) times.peak_activations = std::max(times.peak_activations, ++rank.held);
    if (kind == ActionKind::backward) rank.held -= 1;
    if (kind == ActionKind::backward_input) rank.held -= 1 - costs_.kept_for_weight;
    if (kind == ActionKind::backward_weight) rank.held -= costs_.kept_for_weight;
  }

  void publish(const Product& product, double end, int reader_stage) {
    end_of(product) = end;
    if (reader_stage < 0 || reader_stage >= schedule_.stages()) return;
    const u16 reader = schedule_.rank_of[static_cast<size_t>(reader_stage)];
    if (ranks_[reader].waits_for == product) awake_.push_back(reader);
  }

  [[noreturn]] void refuse_circle(size_t rank) const {
    std::vector<bool> seen(ranks_.size(), false);
    while (!seen[rank]) {  // follows the waits until it reaches a rank for the second time, which is then part of the cycle
      seen[rank] = true;
      if (const auto next = waits_on(rank)) rank = *next;
    }
    constexpr int kMostShown = 8;
    std::string circle;
    const size_t first = rank;
    for (int shown = 0; shown == 0 || (rank != first && shown < kMostShown); ++shown) {
      const Rank& r = ranks_[rank];
      const Action& stuck = schedule_.rows[rank][r.next];
      circle +=
          fmt::format("{}rank {} at {} waits for {}", shown == 0 ? "" : ", ", rank, parallel::to_string(stuck), to_string(*r.waits_for));
      rank = waits_on(rank).value_or(first);
    }
    const Rank& r = ranks_[first];
    throw Error(ErrorCode::data, fmt::format("{}: expected an order in which every action can run, but the ranks wait for each other: {}",
                                             at_cell(schedule_, static_cast<i64>(first), cell_of(schedule_.rows[first], r.next)), circle));
  }

  // Returns the rank for which this rank waits. Returns nothing if that rank has ended without producing what is needed.
  std::optional<size_t> waits_on(size_t rank) const {
    const size_t other = schedule_.rank_of[ranks_[rank].waits_for->stage];
    return ranks_[other].waits_for ? std::optional(other) : std::nullopt;
  }

  const Schedule& schedule_;
  const ScheduleCosts& costs_;
  std::vector<double> ends_[2];  // when each output (index 0) or gradient (index 1) was finished, as [stage][micro-batch]
  std::vector<Rank> ranks_;
  std::vector<size_t> awake_;
  ScheduleTimes times_;
};

void check_costs(const Schedule& schedule, const ScheduleCosts& costs) {
  const size_t stages = static_cast<size_t>(schedule.stages());
  if (costs.stages.size() != 1 && costs.stages.size() != stages) {
    throw Error(ErrorCode::usage, fmt::format("[schedule costs] expected 1 cost for all stages or {} costs, one for each stage, got {}",
                                              stages, costs.stages.size()));
  }
  std::vector<double> all = {costs.transfer};
  for (const StageCosts& s : costs.stages) all.insert(all.end(), {s.forward, s.backward, s.backward_input, s.backward_weight});
  const auto wrong = std::ranges::find_if(all, [](double cost) { return cost != 0 && !(cost >= kLeastCost && cost <= kMostCost); });
  if (wrong != all.end()) {
    throw Error(ErrorCode::usage,
                fmt::format("[schedule costs] expected times that are 0 or from {} to {}, got {}", kLeastCost, kMostCost, *wrong));
  }
  if (!(costs.kept_for_weight >= 0 && costs.kept_for_weight <= 1))
    throw Error(ErrorCode::usage,
                fmt::format("[schedule costs] expected the fraction of activations that are kept for W to be from 0 to 1, got {}",
                            costs.kept_for_weight));
}

}  // namespace

double StageCosts::of(ActionKind kind) const {
  const double costs[] = {0, forward, backward, backward_input, backward_weight};
  return costs[static_cast<size_t>(kind)];
}

double ScheduleTimes::bubble() const {
  double idle_sum = 0;
  for (const RankTimes& rank : ranks) idle_sum += makespan - rank.busy;
  return makespan > 0 ? idle_sum / (makespan * static_cast<double>(ranks.size())) : 0;
}

ScheduleTimes simulate_schedule(const Schedule& schedule, const ScheduleCosts& costs) {
  check_costs(schedule, costs);
  return Simulator(schedule, costs).run();
}

Schedule with_idle(const Schedule& schedule) {
  Schedule spread = without_idle(schedule);
  const ScheduleTimes times = simulate_schedule(spread);
  for (size_t r = 0; r < spread.rows.size(); ++r) {
    ScheduleRow row;
    double slot = 0;
    bool paired = false;
    for (size_t i = 0; i < spread.rows[r].size(); ++i) {
      const Action& action = spread.rows[r][i];
      for (; !paired && slot < times.actions[r][i].start; ++slot) row.emplace_back();
      row.push_back(action);
      slot = paired ? slot : slot + 1;
      paired = action.overlaps_next;
    }
    spread.rows[r] = std::move(row);
  }
  return spread;
}

}  // namespace spillway::parallel
