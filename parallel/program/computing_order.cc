#include "parallel/program/computing_order.h"

#include <algorithm>
#include <optional>
#include <set>

namespace spillway::parallel {
namespace {

Schedule one_forward(Schedule schedule) {
  for (ScheduleRow& row : schedule.rows)
    std::erase_if(row, [](const Action& a) { return a.kind != ActionKind::forward || a.micro_batch > 0; });
  return schedule;
}

Op backward_op(ActionKind kind) {
  return kind == ActionKind::backward ? Op::Backward : kind == ActionKind::backward_input ? Op::BackwardInput : Op::BackwardWeight;
}

// Returns the message that this action produces for a block of another stage, or nothing if there is no such block.
std::optional<Message> product_of(const Action& a, const Stages& stages, const Layout& layout) {
  const u16 first = stages.first(a.stage), end = stages.end(a.stage);
  if (a.kind == ActionKind::forward)
    return end < layout.rank_of.size() ? std::optional(Message{false, static_cast<u16>(end - 1), a.micro_batch}) : std::nullopt;
  const bool none = a.kind == ActionKind::backward_weight || first <= layout.first_trained_block;
  return none ? std::nullopt : std::optional(Message{true, static_cast<u16>(first - 1), a.micro_batch});
}

}  // namespace

ComputingOrder::ComputingOrder(const Layout& layout, const Scheduling& scheduling, bool training)
    : prefetch_(static_cast<size_t>(scheduling.prefetch)) {
  Stages stages = make_stages(layout, scheduling);
  if (!training) stages.schedule = one_forward(std::move(stages.schedule));
  const ScheduleTimes times = simulate_schedule(stages.schedule);
  const ScheduleRow& row = stages.schedule.rows[layout.rank];
  for (size_t a = 0; a < row.size(); ++a) add(layout, stages, row[a], times.actions[layout.rank][a].end);
  place_messages(layout, stages, times);
}

void ComputingOrder::add(const Layout& layout, const Stages& stages, const Action& action, double end_time) {
  const u16 first = stages.first(action.stage), end = stages.end(action.stage);
  if (action.kind == ActionKind::forward) {
    for (u16 b = first; b < end; ++b) add_run({Op::Forward, b, action.micro_batch});
  } else {
    const Op op = backward_op(action.kind);
    for (u16 b = end; b-- > std::max(first, layout.first_trained_block);) {
      if (op != Op::BackwardWeight || layout.trains(b)) add_run({op, b, action.micro_batch});
    }
  }
  ends_.resize(order_.size(), end_time);
}

void ComputingOrder::add_run(const Compute& c) {
  const Compute* last = order_.empty() ? nullptr : &order_.back();
  const bool same_run = last && last->op == c.op && last->block == c.block && last->micro_batch + 1 == c.micro_batch;
  if (!same_run) run_begin_.push_back(size());
  run_of_.push_back(run_begin_.size() - 1);
  order_.push_back(c);
}

// Finds the position at which each message is received. A message is available when the action that produces it ends. The receiver waits
// for it only after all its own actions that end earlier. So a rank never waits while it holds memory, or a place in the order, that an
// earlier message needs.
void ComputingOrder::place_messages(const Layout& layout, const Stages& stages, const ScheduleTimes& times) {
  std::vector<std::pair<double, Message>> incoming;
  for (size_t r = 0; r < stages.schedule.rows.size(); ++r) {
    const ScheduleRow& row = stages.schedule.rows[r];
    for (size_t a = 0; a < row.size(); ++a) {
      const auto m = product_of(row[a], stages, layout);
      if (!m || !layout.crosses(m->block) || !layout.here(static_cast<u16>(m->gradient ? m->block : m->block + 1))) continue;
      incoming.emplace_back(times.actions[r][a].end, *m);
    }
  }
  std::ranges::sort(incoming);
  received_at_.resize(order_.size());
  for (const auto& [time, message] : incoming) {
    const auto position = std::ranges::lower_bound(ends_, time) - ends_.begin();
    received_at_[static_cast<size_t>(position)].push_back(message);
  }
}

i64 ComputingOrder::issue_at(i64 position) const {
  const size_t run = run_of_[static_cast<size_t>(position)];
  return run_begin_[run > prefetch_ ? run - prefetch_ : 0];
}

bool ComputingOrder::goes_on(i64 position) const {
  const auto next = static_cast<size_t>(position) + 1;
  return next < order_.size() && run_of_[next] == run_of_[next - 1];
}

i64 ComputingOrder::live(u16 block) const {
  std::set<u16> now;
  i64 most = 0;
  for (const Compute& c : order_) {
    if (c.block != block || c.op == Op::BackwardWeight) continue;
    if (makes_input_gradient(c.op)) {
      now.erase(c.micro_batch);
    } else {
      now.insert(c.micro_batch);
      most = std::max<i64>(most, *now.rbegin() - *now.begin() + 1);
    }
  }
  return most;
}

}  // namespace spillway::parallel
