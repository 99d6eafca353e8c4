#include "trainer/record/recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "data/files/file.h"

namespace spillway::trainer {
namespace {

constexpr i64 kWarm = 3;  // the third step of a process is the first typical one, after two warm-up steps

}  // namespace

Recorder::Recorder(std::filesystem::path run, const Peers& peers, i64 first, i64 last)
    : run_(std::move(run)), peers_(peers), looked_at_(std::min(first + kWarm, last)) {}

std::string Recorder::write(const std::filesystem::path& file, const std::string& text) const try {
  data::replace_text(file, text);
  return "";
} catch (const Error& error) {
  return fmt::format("{} cannot be written, so the run continues without this file: {}", file.string(), error.what());
}

std::string Recorder::plan(const RunPlan& plan) const { return peers_.first() ? write(run_plan_file(run_), to_json(plan)) : ""; }

std::string Recorder::step(i64 step, const parallel::Rank& rank) const {
  if (step != looked_at_) return "";
  const std::string name = peers_.ranks() > 1 ? peers_.name(peers_.rank()) : "";
  const std::vector<std::string> ranks = peers_.gather(to_json(timeline_of(rank, name)));
  return peers_.first() ? write(timeline_file(run_), to_json(step, ranks)) : "";
}

RankTimeline timeline_of(const parallel::Rank& rank, const std::string& name) {
  RankTimeline made{name, {}};
  const std::chrono::duration<double, std::micro> gap = rank.tail_begin() - rank.head_begin();
  add_list(made.bars, *rank.last_head(), rank.head_timings(), 0);
  add_list(made.bars, *rank.last_tail(), rank.tail_timings(), gap.count());
  made.bars = thinned(std::move(made.bars), kMostBars);
  return made;
}

RankTimeline timeline_of(const parallel::Program& program, const StepCost& cost, const std::string& name) {
  RankTimeline made{name, {}};
  add_list(made.bars, program.head, cost.head_us, 0);
  double head_us = 0;
  for (const parallel::Timing& timing : cost.head_us) head_us = std::max(head_us, timing.end_us);
  add_list(made.bars, program.commit, cost.tail_us, head_us);
  made.bars = thinned(std::move(made.bars), kMostBars);
  return made;
}

}  // namespace spillway::trainer
