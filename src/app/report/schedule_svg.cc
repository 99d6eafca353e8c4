// Draws a pipeline schedule as SVG. Distances are in pixels; times are in the schedule's own unit.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "app/report/html.h"
#include "app/report/schedule_report.h"
#include "trainer/settings/text.h"

namespace spillway::app {
namespace {

using parallel::ActionKind;
using parallel::ScheduleRow;

constexpr double kLeft = 64, kTop = 34, kRow = 26, kBox = 22, kDigit = 6.5, kMargin = 12, kWidest = 30'000;

// Colours of the actions, indexed by ActionKind: white for idle, then blue, orange, pink and green, which colour-blind readers can
// tell apart.
using Rgb = std::array<int, 3>;
constexpr Rgb kColours[] = {{255, 255, 255}, {91, 143, 217}, {229, 134, 60}, {206, 109, 160}, {97, 170, 105}};

// Returns the fill colour of an action. If a rank has several chunks (stages of the model), later ones are paler.
std::string fill(ActionKind kind, i32 chunk, i32 chunks) {
  const double pale = chunks > 1 ? 0.62 * chunk / (chunks - 1) : 0;
  const Rgb base = kColours[static_cast<size_t>(kind)];
  const auto mixed = [&](int part) { return static_cast<int>(std::lround(part + (255 - part) * pale)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(base[0]), mixed(base[1]), mixed(base[2]));
}

class Drawing {
 public:
  explicit Drawing(const ScheduleReport& report)
      : report_(report), chunks_(report.schedule.chunks()), chunk_of_(report.schedule.chunk_of()), scale_(pixels_per_time()) {}

  std::string draw() {
    const double bottom = kTop + kRow * report_.schedule.ranks();
    const double width = std::max(kLeft + scale_ * report_.times.makespan + kMargin, 800.0), height = bottom + 64;
    put(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif" )"
        R"(font-size="11"><rect width="100%" height="100%" fill="#ffffff"/>)",
        width, height);
    text(kMargin, 20, "start",
         fmt::format("{}: {} ranks, {} micro-batches, makespan {:.6g}, bubble {:.1f} %", escaped(report_.schedule.name),
                     report_.schedule.ranks(), report_.schedule.micro_batches, report_.times.makespan, 100 * report_.times.bubble()));
    for (size_t r = 0; r < report_.schedule.rows.size(); ++r) draw_rank(r);
    draw_axis(bottom);
    draw_legend(bottom + 34);
    return std::move(svg_) + "</svg>\n";
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
    svg_ += '\n';
  }
  void text(double x, double y, const char* anchor, const std::string& words) {
    put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor, words);
  }

  // Returns the scale at which the shortest action (of those that take time) has room for the longest micro-batch number.
  double pixels_per_time() const {
    double shortest = report_.times.makespan;
    for (const auto& row : report_.times.actions) {
      for (const auto& time : row) {
        if (time.end > time.start) shortest = std::min(shortest, time.end - time.start);
      }
    }
    if (shortest <= 0) return 0;
    const double room = 8 + kDigit * static_cast<double>(std::to_string(report_.schedule.micro_batches - 1).size());
    return std::min(room / shortest, kWidest / report_.times.makespan);
  }

  void draw_rank(size_t r) {
    const ScheduleRow& row = report_.schedule.rows[r];
    const double y = kTop + kRow * static_cast<double>(r);
    text(kLeft - 8, y + 15, "end", fmt::format("rank {}", r));
    put(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" fill="#f1f1f1"/>)", kLeft, y, scale_ * report_.times.makespan, kBox);
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i].kind != ActionKind::idle) draw_action(row[i], report_.times.actions[r][i], y);
    }
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i].overlaps_next) draw_pair(report_.times.actions[r][i].start, report_.times.actions[r][i + 1].end, y);
    }
  }

  void draw_action(const parallel::Action& action, const parallel::ActionTime& time, double y) {
    const double x = kLeft + scale_ * time.start, width = scale_ * (time.end - time.start);
    put(R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{}" fill="{}" stroke="#ffffff"><title>{}: {:.6g} to {:.6g}</title></rect>)",
        x, y, width, kBox, fill(action.kind, chunk_of_[action.stage], chunks_), parallel::to_string(action), time.start, time.end);
    const std::string words = std::to_string(action.micro_batch);
    if (kDigit * static_cast<double>(words.size()) <= width) text(x + width / 2, y + 15, "middle", words);
  }

  void draw_pair(double start, double end, double y) {
    put(R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{}" fill="none" stroke="#222222" stroke-width="1.5"/>)",
        kLeft + scale_ * start, y, scale_ * (end - start), kBox);
  }

  // Draws ticks that are at least 60 pixels apart, at multiples of 1, 2 or 5 times a power of ten.
  void draw_axis(double y) {
    if (scale_ <= 0) return;
    const double wanted = 60 / scale_, power = std::pow(10, std::floor(std::log10(wanted)));
    const double step = power * (wanted <= power ? 1 : wanted <= 2 * power ? 2 : wanted <= 5 * power ? 5 : 10);
    for (i64 tick = 0; static_cast<double>(tick) * step <= report_.times.makespan; ++tick) {
      const double time = static_cast<double>(tick) * step;
      text(kLeft + scale_ * time, y + 12, "middle", fmt::format("{:.6g}", time));
    }
  }

  void draw_legend(double y) {
    constexpr std::pair<ActionKind, const char*> kKinds[] = {{ActionKind::forward, "F forward"},
                                                             {ActionKind::backward, "B backward"},
                                                             {ActionKind::backward_input, "I backward, input"},
                                                             {ActionKind::backward_weight, "W backward, weights"}};
    double x = kLeft;
    for (const auto& [kind, words] : kKinds) {
      put(R"(<rect x="{:.1f}" y="{:.1f}" width="14" height="14" fill="{}"/>)", x, y, fill(kind, 0, 1));
      text(x + 19, y + 11, "start", words);
      x += 38 + kDigit * static_cast<double>(std::string_view(words).size());
    }
    if (chunks_ > 1) text(x, y + 11, "start", fmt::format("paler: later chunks of a rank, which has {}", chunks_));
  }

  const ScheduleReport& report_;
  const i32 chunks_;
  const std::vector<i32> chunk_of_;
  const double scale_;
  std::string svg_;
};

}  // namespace

std::string schedule_svg(const ScheduleReport& report) {
  if (const i64 actions = action_count(report.schedule); actions > kMostDrawnActions) {
    throw Error(ErrorCode::usage, fmt::format("[--out] expected at most {} actions to draw, got {}: draw fewer stages or micro-batches",
                                              kMostDrawnActions, actions));
  }
  return Drawing(report).draw();
}

}  // namespace spillway::app
