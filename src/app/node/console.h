// Where the program speaks: results to `out`, progress and log to `err`. On a terminal lines wrap between words, and the progress is one
// line that is refreshed; piped it is plain lines, those of passing() now and then. What is said is also recorded, where there is a record.
// --quiet silences progress and log, never warnings and results. Control characters are written out (base/printable.h): much that is said
// is of unknown origin. Thread-safe; the streams must outlive it.
#pragma once
#include <chrono>
#include <functional>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway::app {

enum class Colour { none, green, yellow, red };

class Console {
 public:
  /// `terminal`: `err` is one; `out_terminal`: `out` is. `colour`: `out` is a terminal that takes colours.
  Console(std::ostream& out, std::ostream& err, bool terminal = false, bool colour = false, bool out_terminal = false);
  /// Ends a progress line that still stands.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void set_quiet(bool quiet) { quiet_ = quiet; }
  void set_json(bool json) { json_ = json; }
  bool quiet() const { return quiet_; }
  bool json() const { return json_; }
  bool terminal() const { return terminal_; }
  bool out_terminal() const { return out_terminal_; }
  /// Columns and rows of stdout's terminal; 80 and 24 where it does not say.
  std::pair<size_t, size_t> size() const;
  /// As many characters of UTF-8 as there are columns.
  static std::string cut_to(std::string_view line, size_t columns);

  /// A line (or several) for stdout.
  void result(std::string_view text);
  /// An answer: the text, or with --json that; then `set_text`'s stream, if there is one, gets the text beside it.
  void result(const std::function<std::string()>& json, const std::function<std::string()>& text);
  void set_text(std::ostream* text) { text_ = text; }
  /// Text for stdout, flushed: streaming output. Where stdout is no terminal it is written as it is: it may be a program's input.
  void stream(std::string_view text);
  /// Likewise, with control sequences of our own.
  void draw(std::string_view text);
  /// A line for stderr.
  void log(std::string_view line);
  void warn(std::string_view line);
  /// The progress so far: replaces the last progress line on a terminal, cut to its width; a line of its own when piped.
  void progress(std::string_view line);
  /// Progress whose lines are of no use later: piped there is one in five seconds.
  void passing(std::string_view line);
  /// Lets the progress line stand.
  void end_progress();

  /// From now on every result, log line and warning goes there too, first those said until now; empty: no more. The record must outlive
  /// that. Not from within it.
  void record(std::function<void(std::string_view)> record);

  /// `word` in colour where stdout takes it.
  std::string painted(std::string_view word, Colour colour) const;

 private:
  void clear_progress();
  std::string shown(std::string_view text) const;
  void say(std::string_view text);
  void keep(std::string_view line);

  std::ostream& out_;
  std::ostream& err_;
  std::ostream* text_ = nullptr;
  const bool terminal_, colour_, out_terminal_;
  bool quiet_ = false, json_ = false, progress_shown_ = false;
  std::chrono::steady_clock::time_point next_passing_{};
  std::function<void(std::string_view)> record_;
  std::vector<std::string> early_;  // said before there was a record
  std::mutex mutex_;
};

}  // namespace spillway::app
