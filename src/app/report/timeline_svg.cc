#include "app/report/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "app/report/axis.h"
#include "app/report/chart.h"
#include "app/report/html.h"

namespace spillway::app {
namespace {

constexpr double kTimeWidth = 1100, kTimeLeft = 86, kTimeRight = 14, kTimeTop = 6, kTimeRow = 26, kTimeBar = 21, kTimeAxis = 30,
                 kTimeDigit = 7;
constexpr size_t kMostRows = 64;

struct LaneRow {
  std::string name;
  std::vector<Bar> bars;
};

std::string words_of(const Bar& bar) {
  std::string text = bar.kind;
  std::ranges::replace(text, '_', ' ');
  if (bar.block >= 0) text += fmt::format(", block {}", bar.block);
  if (bar.micro_batch >= 0) text += fmt::format(", micro-batch {}", bar.micro_batch);
  if (bar.count > 1) text += fmt::format(", {} instructions", bar.count);
  return text +
         fmt::format(": {}, from {}", shown((bar.end_us - bar.start_us) / 1e6, Unit::seconds), shown(bar.start_us / 1e6, Unit::seconds));
}

class TimelineDrawing {
 public:
  TimelineDrawing(const std::vector<LaneRow>& rows, double end_us, bool numbers)
      : rows_(rows), end_us_(end_us), numbers_(numbers), height_(kTimeTop + kTimeRow * static_cast<double>(rows.size()) + kTimeAxis) {}

  std::string svg(const std::string& title) {
    put(R"(<svg viewBox="0 0 {} {:.0f}" role="img"><title>{}</title>)", kTimeWidth, height_, escaped(title));
    for (const double tick : ticks(0, end_us_ / 1e6, 10, Unit::seconds)) {
      put(R"(<path class="grid" d="M{0:.1f} {1:.0f}V{2:.0f}"/><text x="{0:.1f}" y="{3:.0f}" text-anchor="middle">{4}</text>)",
          x(tick * 1e6), kTimeTop, height_ - kTimeAxis, height_ - kTimeAxis + 16, shown(tick, Unit::seconds));
    }
    for (size_t r = 0; r < rows_.size(); ++r) draw(rows_[r], kTimeTop + kTimeRow * static_cast<double>(r));
    return std::move(svg_) + "</svg>\n";
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
    svg_ += '\n';
  }
  double x(double us) const { return kTimeLeft + us / end_us_ * (kTimeWidth - kTimeLeft - kTimeRight); }

  void draw(const LaneRow& row, double top) {
    put(R"(<text x="{}" y="{:.0f}" text-anchor="end">{}</text><path class="lane" d="M{} {:.0f}H{}v{}H{}z"/>)", kTimeLeft - 8, top + 15,
        escaped(row.name), kTimeLeft, top, kTimeWidth - kTimeRight, kTimeBar, kTimeLeft);
    for (const Bar& bar : row.bars) {
      const double begin = x(bar.start_us), width = std::max(0.4, x(bar.end_us) - begin);
      put(R"(<rect class="{}" x="{:.1f}" y="{:.0f}" width="{:.1f}" height="{}"><title>{}</title></rect>)", kind_class(bar.kind), begin, top,
          width, kTimeBar, escaped(words_of(bar)));
      const std::string number = std::to_string(bar.micro_batch);
      if (numbers_ && bar.micro_batch >= 0 && kTimeDigit * static_cast<double>(number.size()) + 4 < width)
        put(R"(<text class="in" x="{:.1f}" y="{:.0f}" text-anchor="middle">{}</text>)", begin + width / 2, top + 15, number);
    }
  }

  const std::vector<LaneRow>& rows_;
  const double end_us_;
  const bool numbers_;
  const double height_;
  std::string svg_;
};

// Joins neighbouring bars of the same kind and micro-batch, such as the blocks
// of a pipeline stage, into one bar if the gap between them is below `gap_us`.
std::vector<Bar> joined(const std::vector<Bar>& bars, double gap_us) {
  std::vector<Bar> out;
  for (const Bar& bar : bars) {
    const bool joins = !out.empty() && out.back().kind == bar.kind && out.back().micro_batch == bar.micro_batch &&
                       bar.start_us - out.back().end_us < gap_us;
    if (!joins) {
      out.push_back(bar);
      continue;
    }
    out.back().end_us = std::max(out.back().end_us, bar.end_us);
    out.back().count += bar.count;
    out.back().block = -1;
  }
  return out;
}

std::string figure_of(std::vector<LaneRow> rows, double end_us, const std::string& caption, bool numbers) {
  if (rows.empty() || !(end_us > 0)) return "";
  std::string note;
  if (rows.size() > kMostRows) note = fmt::format(" The first {} of {} ranks are drawn.", kMostRows, rows.size());
  rows.resize(std::min(rows.size(), kMostRows));
  std::set<std::string> kinds;
  for (const LaneRow& row : rows) {
    for (const Bar& bar : row.bars) kinds.insert(bar.kind);
  }
  std::string legend;
  for (const std::string& kind : kinds) {
    std::string words = kind;
    std::ranges::replace(words, '_', ' ');
    legend += fmt::format(R"(<span><i class="{}"></i>{}</span> )", kind_class(kind), escaped(words));
  }
  return fmt::format(
      "<figure class=\"time\"><figcaption>{}</figcaption>\n<div class=\"legend\">{}</div>\n<div class=\"wide\">{}</div></figure>\n",
      escaped(caption + note), legend, TimelineDrawing(rows, end_us, numbers).svg(caption));
}

}  // namespace

std::string lanes_figure(const Timeline& timeline, size_t rank, const std::string& caption, size_t most) {
  if (rank >= timeline.ranks.size()) return "";
  const std::vector<Bar> bars = thinned(timeline.ranks[rank].bars, most);
  std::vector<LaneRow> rows;
  double end_us = 0;
  for (int lane = 0; lane < parallel::kLanes; ++lane) {
    LaneRow row{std::string(to_string(static_cast<parallel::Lane>(lane))), {}};
    for (const Bar& bar : bars) {
      if (static_cast<int>(bar.lane) == lane) row.bars.push_back(bar);
      end_us = std::max(end_us, bar.end_us);
    }
    if (!row.bars.empty()) rows.push_back(std::move(row));
  }
  return figure_of(std::move(rows), end_us, caption, false);
}

std::string pipeline_figure(const Timeline& timeline, const std::string& caption, size_t most) {
  std::vector<LaneRow> rows;
  const size_t each = std::max<size_t>(20, most / std::max<size_t>(1, std::min(kMostRows, timeline.ranks.size())));
  for (size_t r = 0; r < timeline.ranks.size(); ++r) {
    std::vector<Bar> bars = timeline.ranks[r].bars;
    std::erase_if(bars, [](const Bar& bar) { return bar.lane != parallel::Lane::compute; });
    rows.push_back({fmt::format("rank {}", r), thinned(joined(bars, timeline.end_us() / 300), each)});
  }
  return figure_of(std::move(rows), timeline.end_us(), caption, true);
}

}  // namespace spillway::app
