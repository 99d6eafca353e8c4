// Implements `spillway top`, which shows a live run, from its folder alone. On a terminal the screen
// is redrawn; elsewhere a line is printed each time. The command ends with the run, or at q or Ctrl-C.
#include <fmt/format.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/console/signals.h"
#include "app/report/top_view.h"
#include "base/printable.h"
#include "trainer/node/stop.h"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

// While a Keys object lives, keys are read one by one and not echoed. If stdin is not a terminal, no keys are read.
class Keys {
 public:
  Keys() : raw_(isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!raw_) return;
    termios now = before_;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw_ = tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
  }
  ~Keys() {
    if (raw_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  /// Waits for `seconds`. Returns true if the user wants to quit.
  bool quits_within(double seconds) const {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    while (!stop_requested()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      if (left <= 0) return false;
      pollfd in{STDIN_FILENO, POLLIN, 0};
      char key = 0;
      // A signal ends the wait. A signal that arrives just before poll() is noticed at the latest 200 ms later.
      if (::poll(&in, raw_ ? 1 : 0, static_cast<int>(std::min<long long>(left, 200))) > 0 &&
          (::read(STDIN_FILENO, &key, 1) < 1 || key == 'q'))
        return true;
    }
    return true;
  }

 private:
  termios before_{};
  bool raw_ = false;
};

// Screen draws each screen over the previous one.
class Screen {
 public:
  explicit Screen(Console& console) : console_(console) {}

  void show(const TopView& view) {
    const auto [columns, rows] = console_.size();
    std::vector<std::string> lines = top_screen(view, columns - 1);
    if (lines.size() + 1 > rows) lines.resize(rows - 1);
    std::string text = height_ > 0 ? fmt::format("\033[{}A\r", height_) : "";
    for (const std::string& line : lines) text += Console::cut_to(in_one_line(line), columns - 1) + "\033[K\n";
    console_.draw(text + "\033[J");
    height_ = lines.size();
  }

 private:
  Console& console_;
  size_t height_ = 0;
};

std::string to_json_line(const TopView& view) {
  const RunStatus& s = view.status;
  const auto maybe = [](const auto& value) { return value ? Json(*value) : Json(); };
  const Json all{{"state", to_string(s.state)},
                 {"step", s.step},
                 {"steps", maybe(s.steps)},
                 {"loss", maybe(s.loss)},
                 {"validation_loss", maybe(s.validation_loss)},
                 {"step_s", maybe(s.step_s)},
                 {"tokens_per_s", maybe(s.tokens_per_s)},
                 {"positions_per_s", maybe(s.positions_per_s)},
                 {"left_s", maybe(s.left_s)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

int run_top(const TopConfig& config, Console& console) {
  TopView view = look_at(config.run);
  install_stop_handlers();
  const Keys keys;
  Screen screen(console);
  const bool drawn = console.out_terminal() && !console.json();
  for (;; view = look_at(config.run)) {
    if (drawn) {
      screen.show(view);
    } else {
      console.stream(in_one_line(console.json() ? to_json_line(view) : top_line(view)) + "\n");
    }
    if (view.status.state != RunStatus::State::running || keys.quits_within(static_cast<double>(config.every_s))) return 0;
  }
}

}  // namespace spillway::app
