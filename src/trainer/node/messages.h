// The lines that a run says while it works. The library itself writes nothing to stdout or stderr: it calls a Messages, whose owner decides
// where the lines go. The program's Console (app/console/console.h) writes them to the terminal; LineMessages passes them to a function.
// Thread-safe, because several threads of a run report.
#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::trainer {

class Messages {
 public:
  virtual ~Messages() = default;
  /// Passes on a result: one line or several.
  virtual void result(std::string_view text) = 0;
  /// Passes on a line of the log, or a warning.
  virtual void log(std::string_view line) = 0;
  virtual void warn(std::string_view line) = 0;
  /// Passes on the progress so far, which may replace the progress before it.
  virtual void progress(std::string_view line) = 0;
  /// Ends the progress line, so that later lines do not replace it.
  virtual void end_progress() = 0;

  /// Returns whether the owner wants no log, whether it wants results as JSON, and whether a person reads the lines on a terminal.
  virtual bool quiet() const = 0;
  virtual bool json() const = 0;
  virtual bool terminal() const = 0;

  /// Passes every result, log line and warning to `record` from now on, beginning with the first 1000 lines passed before this call. An
  /// empty function stops the recording. `record` must stay valid until then and must not call this object.
  void record(std::function<void(std::string_view)> record);

 protected:
  /// Passes a line to the function of record(), or stores it until there is one. The caller holds mutex_.
  void keep(std::string_view line);

  std::mutex mutex_;

 private:
  std::function<void(std::string_view)> record_;
  std::vector<std::string> early_;  // the lines before record() was called
};

/// Passes each line to a function, as plain text without terminal control: what the program writes where stderr is no terminal. Control
/// characters are made visible, because much of the text is of unknown origin.
class LineMessages final : public Messages {
 public:
  /// `line` may be empty; then the lines go nowhere. It is called by one thread at a time, and may not call this object.
  explicit LineMessages(std::function<void(std::string_view)> line = {}, bool quiet = false, bool json = false);

  void result(std::string_view text) override;
  void log(std::string_view line) override;
  void warn(std::string_view line) override;
  void progress(std::string_view line) override;
  void end_progress() override {}
  bool quiet() const override { return quiet_; }
  bool json() const override { return json_; }
  bool terminal() const override { return false; }

 private:
  void pass(std::string_view line) const;
  const std::function<void(std::string_view)> line_;
  const bool quiet_, json_;
};

}  // namespace spillway::trainer
