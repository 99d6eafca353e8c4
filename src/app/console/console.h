// Console writes the program's output: results go to `out`, progress and log to `err`. On a terminal, lines wrap
// between words, and the progress is one line that is refreshed. If `err` is piped, progress consists of plain lines,
// and passing() writes at most one every five seconds. Results, log lines and warnings also go to the function that
// record() sets. --quiet silences progress and log, but not warnings and results. Control characters are made visible
// (base/printable.h), because much of the text is of unknown origin. Thread-safe. The streams must outlive the Console.
#pragma once
#include <chrono>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "app/names/names.h"
#include "trainer/node/messages.h"

namespace spillway::app {

enum class Colour { none, green, yellow, red };

class Console final : public Messages {
 public:
  /// `terminal` says that `err` is a terminal, `out_terminal` that `out` is one, and `colour` that `out` is a terminal with colours.
  Console(std::ostream& out, std::ostream& err, bool terminal = false, bool colour = false, bool out_terminal = false);
  /// Ends a progress line that is still shown.
  ~Console() override;
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void set_quiet(bool quiet) { quiet_ = quiet; }
  void set_json(bool json) { json_ = json; }
  bool quiet() const override { return quiet_; }
  bool json() const override { return json_; }
  bool terminal() const override { return terminal_; }
  bool out_terminal() const { return out_terminal_; }
  /// Returns the columns and rows of stdout's terminal, or 80 and 24 if they are unknown.
  std::pair<size_t, size_t> size() const;
  /// Returns the first `columns` UTF-8 characters of `line`.
  static std::string cut_to(std::string_view line, size_t columns);

  /// Writes one line or several to stdout.
  void result(std::string_view text) override;
  /// Writes a result to stdout: text(), or json() with --json. With --json, text() also goes to the stream of set_text(), if there is one.
  void result(const std::function<std::string()>& json, const std::function<std::string()>& text);
  void set_text(std::ostream* text) { text_ = text; }
  /// Writes a piece of streaming text to stdout and flushes. If stdout is not a terminal, the text is not altered, because a program may
  /// read it.
  void stream(std::string_view text);
  /// Writes text with terminal control sequences to stdout and flushes. The text must come from this program itself, because nothing is
  /// escaped.
  void draw(std::string_view text);
  /// Writes a line to stderr.
  void log(std::string_view line) override;
  void warn(std::string_view line) override;
  /// Shows the progress so far. On a terminal it replaces the last progress line and is cut to the width; piped, it is a separate line.
  void progress(std::string_view line) override;
  /// Shows progress that is soon outdated. If stderr is piped, at most one such line is written every five seconds.
  void passing(std::string_view line);
  /// Ends the progress line, so that later output does not replace it.
  void end_progress() override;

  /// Returns `word` in colour if stdout takes colours, else unchanged.
  std::string painted(std::string_view word, Colour colour) const;

 private:
  void clear_progress();
  std::string shown(std::string_view text) const;
  void say(std::string_view text);

  std::ostream& out_;
  std::ostream& err_;
  std::ostream* text_ = nullptr;
  const bool terminal_, colour_, out_terminal_;
  bool quiet_ = false, json_ = false, progress_shown_ = false;
  std::chrono::steady_clock::time_point next_passing_{};
};

}  // namespace spillway::app
