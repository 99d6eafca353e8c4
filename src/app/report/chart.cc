#include "app/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>

#include "app/report/html.h"

namespace spillway::app {
namespace {

constexpr double kChartWidth = 520, kChartHeight = 250, kChartLeft = 66, kChartRight = 16, kChartTop = 12, kChartBottom = 36, kStrip = 10;
constexpr size_t kMarked = 40;   // a line with at most this many points may have a dot on each
constexpr double kNear = 1.6;    // a limit is drawn if it is at most this many times the greatest value
constexpr double kDwarfed = 20;  // the axis is logarithmic if the greatest value is above this many times the median

struct Extent {
  double low = 0, high = 0;
  bool empty = true;
  void add(double value) {
    low = empty ? value : std::min(low, value);
    high = empty ? value : std::max(high, value);
    empty = false;
  }
};

double middle_of(const Chart& chart) {
  std::vector<double> values;
  for (const ChartLine& line : chart.lines) {
    for (const Point& p : line.points) values.push_back(p.value);
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

class ChartDrawing {
 public:
  explicit ChartDrawing(const Chart& chart) : chart_(chart) {
    for (const ChartLine& line : chart.lines) {
      for (const Point& p : line.points) x_.add(p.step), y_.add(p.value);
    }
    if (y_.empty) return;
    log_ = chart.log.value_or(chart.unit == Unit::number && y_.low > 0 && y_.high > kDwarfed * middle_of(chart)) && y_.low > 0;
    bottom_ = kChartHeight - kChartBottom - (chart.strip.empty() ? 0 : kStrip + 4);
    widen();
  }

  bool empty() const { return y_.empty; }

  std::string svg() {
    put(R"(<svg viewBox="0 0 {} {}" role="img" data-x0="{:.6g}" data-x1="{:.6g}" data-l="{}" data-r="{}" data-t="{}" data-b="{}" data-u="{}">)",
        kChartWidth, kChartHeight, x_.low, x_.high, kChartLeft, kChartWidth - kChartRight, kChartTop, bottom_,
        static_cast<int>(chart_.unit));
    put("<title>{}</title><desc>{}</desc>", escaped(chart_.title), escaped(chart_.what));
    draw_axes();
    draw_limits();
    draw_strip();
    for (const ChartLine& line : chart_.lines) draw_line(line);
    put(R"(<line class="at" y1="{}" y2="{}" hidden=""/></svg>)", kChartTop, bottom_);
    return std::move(svg_);
  }

  bool is_drawn(const Chart::Limit& limit) const { return !log_ && limit.value > 0 && limit.value <= y_.high; }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
    svg_ += '\n';
  }

  // Widens the range of the axes, so that a flat line lies in the middle and limits near the data are inside.
  void widen() {
    if (x_.high <= x_.low) x_.low -= 0.5, x_.high += 0.5;
    if (log_) {
      y_.low /= 1.1, y_.high *= 1.1;
      return;
    }
    const double most = y_.high;
    for (const Chart::Limit& limit : chart_.limits) {
      if (limit.value > 0 && limit.value <= kNear * most) y_.add(limit.value);
    }
    if (chart_.from_zero) y_.low = std::min(0.0, y_.low);
    const double height = y_.high - y_.low, room = height > 0 ? height * 0.05 : std::max(std::abs(y_.high) * 0.1, 1e-12);
    if (!(chart_.from_zero && y_.low == 0)) y_.low -= room;
    y_.high += room;
  }

  double x(double step) const { return kChartLeft + (step - x_.low) / (x_.high - x_.low) * (kChartWidth - kChartLeft - kChartRight); }
  double y(double value) const {
    const double share = log_ ? std::log(value / y_.low) / std::log(y_.high / y_.low) : (value - y_.low) / (y_.high - y_.low);
    return bottom_ - share * (bottom_ - kChartTop);
  }

  void draw_axes() {
    for (const double tick : log_ ? log_ticks(y_.low, y_.high) : ticks(y_.low, y_.high, 5, chart_.unit)) {
      put(R"(<path class="grid" d="M{:.0f} {:.1f}H{:.0f}"/><text x="{:.0f}" y="{:.1f}" text-anchor="end">{}</text>)", kChartLeft, y(tick),
          kChartWidth - kChartRight, kChartLeft - 6, y(tick) + 4, shown(tick, chart_.unit));
    }
    const double base = kChartHeight - kChartBottom;
    for (const double tick : ticks(x_.low, x_.high, 6, Unit::count)) {
      put(R"(<path class="tick" d="M{0:.1f} {1:.0f}v4"/><text x="{0:.1f}" y="{2:.0f}" text-anchor="middle">{3}</text>)", x(tick), base,
          base + 17, shown(tick, Unit::count));
    }
    put(R"(<path class="axis" d="M{:.0f} {:.0f}H{:.0f}"/><text x="{:.0f}" y="{:.0f}" text-anchor="end">step</text>)", kChartLeft, base,
        kChartWidth - kChartRight, kChartWidth - kChartRight, kChartHeight - 4);
  }

  // Draws the limits. The planned bytes are at most the budget, so the plan's name goes below its line and the budget's name above.
  void draw_limits() {
    for (const Chart::Limit& limit : chart_.limits) {
      if (!is_drawn(limit)) continue;
      put(R"(<path class="limit" d="M{0:.0f} {1:.1f}H{2:.0f}"/><text class="limit" x="{2:.0f}" y="{3:.1f}" text-anchor="end">{4}</text>)",
          kChartLeft, y(limit.value), kChartWidth - kChartRight, y(limit.value) + (limit.below ? 14 : -4), escaped(limit.name));
    }
  }

  void draw_strip() {
    for (const Chart::Piece& piece : chart_.strip) {
      const double begin = x(std::max(piece.first - 0.5, x_.low)), end = x(std::min(piece.last + 0.5, x_.high));
      put(R"(<rect class="{}" x="{:.1f}" y="{:.0f}" width="{:.1f}" height="{:.0f}"><title>steps {:.0f} to {:.0f}: {}</title></rect>)",
          kind_class(piece.kind), begin, kChartHeight - kChartBottom - kStrip, std::max(0.5, end - begin), kStrip, piece.first, piece.last,
          escaped(piece.kind));
    }
  }

  void draw_line(const ChartLine& line) {
    if (line.points.empty()) return;
    std::string places, steps, values;
    for (const Point& p : line.points) {
      fmt::format_to(std::back_inserter(places), "{:.1f},{:.1f} ", x(p.step), y(p.value));
      fmt::format_to(std::back_inserter(steps), "{:.0f} ", p.step);
      fmt::format_to(std::back_inserter(values), "{:.5g} ", p.value);
    }
    for (std::string* list : {&places, &steps, &values}) list->pop_back();
    put(R"(<polyline class="c{}{}" points="{}" data-n="{}" data-x="{}" data-y="{}"/>)", line.colour, line.dashed ? " dash" : "", places,
        escaped(line.name), steps, values);
    if (!line.marked && line.points.size() > 1) return;
    if (line.points.size() > kMarked) return;
    for (const Point& p : line.points) put(R"(<circle class="c{}" cx="{:.1f}" cy="{:.1f}" r="3"/>)", line.colour, x(p.step), y(p.value));
  }

  const Chart& chart_;
  Extent x_, y_;
  bool log_ = false;
  double bottom_ = 0;
  std::string svg_;
};

std::string legend(const Chart& chart, const ChartDrawing& drawing) {
  std::string text;
  for (const ChartLine& line : chart.lines) {
    if (line.points.empty() || (chart.lines.size() == 1 && chart.limits.empty() && chart.strip.empty())) continue;
    text += fmt::format(R"(<span><svg class="key" viewBox="0 0 22 8"><path class="c{}{}" d="M1 4H21"/></svg>{}</span> )", line.colour,
                        line.dashed ? " dash" : "", escaped(line.name));
  }
  for (const Chart::Limit& limit : chart.limits) {
    if (limit.value > 0 && !drawing.is_drawn(limit))
      text += fmt::format("<span class=\"muted\">{} {}</span> ", escaped(limit.name), shown(limit.value, chart.unit));
  }
  std::set<std::string> kinds;
  for (const Chart::Piece& piece : chart.strip) kinds.insert(piece.kind);
  for (const std::string& kind : kinds)
    text += fmt::format(R"(<span><i class="{}"></i>{}</span> )", kind_class(kind), escaped("bound by " + kind));
  return text.empty() ? "" : "<div class=\"legend\">" + text + "</div>\n";
}

}  // namespace

std::string figure(const Chart& chart) {
  ChartDrawing drawing(chart);
  if (drawing.empty()) return "";
  return fmt::format("<figure class=\"chart\"><figcaption>{}</figcaption>\n{}{}</figure>\n", escaped(chart.title), legend(chart, drawing),
                     drawing.svg());
}

std::string kind_class(const std::string& kind) {
  std::string name = "k-";
  for (const char c : kind) {
    if (c >= 'a' && c <= 'z') name += c;
    if (c == '_') name += '-';
  }
  return name;
}

}  // namespace spillway::app
