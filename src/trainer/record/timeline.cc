#include "trainer/record/timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/json.h"
#include "trainer/node/host.h"
#include "trainer/plan/phases.h"
#include "trainer/record/json_reading.h"

namespace spillway::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uintmax_t kMostTimelineBytes = 512 * kMiB;
constexpr double kFinest = 1.0 / 1500;  // shortest visible part of a step, as a share of the step: about a pixel of the drawing

i64 number_of(u16 id) { return id == parallel::kNone ? -1 : i64{id}; }

double last_end(const std::vector<Bar>& bars) {
  double end_us = 0;
  for (const Bar& bar : bars) end_us = std::max(end_us, bar.end_us);
  return end_us;
}

// Merges two neighbouring bars of the same lane and kind if at least one of them is shorter than
// `shortest_us` and the gap between them is shorter too. `bars` must be sorted by lane and start.
std::vector<Bar> merged(const std::vector<Bar>& bars, double shortest_us) {
  std::vector<Bar> out;
  for (const Bar& bar : bars) {
    Bar* const last = out.empty() ? nullptr : &out.back();
    const bool joins = last && last->lane == bar.lane && last->kind == bar.kind && bar.start_us - last->end_us < shortest_us &&
                       std::min(bar.end_us - bar.start_us, last->end_us - last->start_us) < shortest_us;
    if (!joins) {
      out.push_back(bar);
      continue;
    }
    last->end_us = std::max(last->end_us, bar.end_us);
    last->count += bar.count;
    if (last->block != bar.block) last->block = -1;
    if (last->micro_batch != bar.micro_batch) last->micro_batch = -1;
  }
  return out;
}

std::optional<Bar> bar_in(const Json& all) {
  if (!all.is_array() || all.size() != 7 || !all[1].is_string()) return {};
  for (const size_t at : {0, 2, 3, 4, 5, 6}) {
    if (!all[at].is_number() || !(std::abs(all[at].get<double>()) < kMostRecorded)) return {};
  }
  const auto lane = static_cast<i64>(all[0].get<double>());
  const Bar bar{static_cast<parallel::Lane>(lane),
                all[1].get<std::string>(),
                all[2].get<double>(),
                all[3].get<double>(),
                static_cast<i64>(all[4].get<double>()),
                static_cast<i64>(all[5].get<double>()),
                static_cast<i64>(all[6].get<double>())};
  return lane >= 0 && lane < parallel::kLanes && bar.start_us >= 0 && bar.end_us >= bar.start_us ? std::optional(bar) : std::nullopt;
}

}  // namespace

double Timeline::end_us() const {
  double end_us = 0;
  for (const RankTimeline& rank : ranks) end_us = std::max(end_us, last_end(rank.bars));
  return end_us;
}

void add_list(std::vector<Bar>& bars, const parallel::List& list, std::span<const parallel::Timing> timings, double begin_us) {
  for (size_t n = 0; n < std::min(list.size(), timings.size()); ++n) {
    const parallel::Instruction& i = list[n];
    const char* const kind = phase_of(i.op);
    bars.push_back({i.lane, kind ? kind : "other", begin_us + timings[n].start_us, begin_us + timings[n].end_us, number_of(i.block),
                    number_of(i.micro_batch), 1});
  }
}

std::vector<Bar> thinned(std::vector<Bar> bars, size_t most) {
  const double end_us = last_end(bars);
  std::erase_if(bars, [](const Bar& bar) { return !(bar.end_us > bar.start_us); });
  std::ranges::stable_sort(bars, {}, [](const Bar& bar) { return std::tuple(bar.lane, bar.start_us); });
  bars = merged(bars, end_us * kFinest);
  // Bars of alternating kinds are not merged. If too many bars remain, only the longest are kept.
  if (bars.size() <= most) return bars;
  std::ranges::nth_element(bars, bars.begin() + static_cast<std::ptrdiff_t>(most), std::ranges::greater(),
                           [](const Bar& bar) { return bar.end_us - bar.start_us; });
  bars.resize(most);
  std::ranges::stable_sort(bars, {}, [](const Bar& bar) { return std::tuple(bar.lane, bar.start_us); });
  return bars;
}

std::filesystem::path timeline_file(const std::filesystem::path& run) { return run / "timeline.json"; }

std::string to_json(const RankTimeline& rank) {
  std::vector<std::string> bars;
  for (const Bar& b : rank.bars)
    bars.push_back(fmt::format(R"([{},"{}",{:.1f},{:.1f},{},{},{}])", static_cast<int>(b.lane), b.kind, b.start_us, b.end_us, b.block,
                               b.micro_batch, b.count));
  const std::string name = Json(rank.name).dump(-1, ' ', false, Json::error_handler_t::replace);
  return fmt::format("{{\"name\":{},\"bars\":[\n{}]}}", name, fmt::join(bars, ",\n"));
}

std::string to_json(i64 step, const std::vector<std::string>& ranks) {
  return fmt::format(
      "{{\"step\":{},\"bar\":[\"lane\",\"kind\",\"start_us\",\"end_us\",\"block\",\"micro_batch\",\"count\"],\"ranks\":[\n{}]}}\n", step,
      fmt::join(ranks, ",\n"));
}

std::optional<Timeline> read_timeline(const std::filesystem::path& run) {
  std::error_code error;
  if (const auto size = std::filesystem::file_size(timeline_file(run), error); error || size > kMostTimelineBytes) return {};
  const Json all = parse_ordered_json(read_whole(timeline_file(run)).value_or(""));
  Timeline timeline;
  timeline.step = whole_in(all, "step");
  for (const Json& rank : part_in(all, "ranks")) {
    RankTimeline& one = timeline.ranks.emplace_back();
    one.name = text_in(rank, "name");
    for (const Json& bar : part_in(rank, "bars")) {
      if (const auto read = bar_in(bar)) one.bars.push_back(*read);
    }
  }
  return timeline.end_us() > 0 ? std::optional(timeline) : std::nullopt;
}

}  // namespace spillway::trainer
