#include "app/node/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace spillway::app {
namespace {

size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

// Cut so that the line does not wrap (a wrapped line cannot be replaced), between characters of UTF-8.
std::string_view cut(std::string_view line, size_t columns) {
  size_t at = 0;
  for (size_t column = 0; at < line.size(); ++at) {
    const bool starts = (static_cast<unsigned char>(line[at]) & 0xC0) != 0x80;
    if (starts && column++ == columns) break;
  }
  return line.substr(0, at);
}

}  // namespace

Console::Console(std::ostream& out, std::ostream& err, bool terminal, bool colour)
    : out_(out), err_(err), terminal_(terminal), colour_(colour) {}

Console::~Console() { end_progress(); }

void Console::clear_progress() {
  if (!progress_shown_) return;
  err_ << "\r\033[K";
  progress_shown_ = false;
}

// So that a program that never has a record does not grow.
void Console::keep(std::string_view line) {
  constexpr size_t kMostEarly = 1000;
  if (record_) {
    record_(line);
  } else if (early_.size() < kMostEarly) {
    early_.emplace_back(line);
  }
}

void Console::record(std::function<void(std::string_view)> record) {
  std::lock_guard lock(mutex_);
  record_ = std::move(record);
  if (!record_) return;
  for (const std::string& line : early_) record_(line);
  early_.clear();
}

void Console::result(std::string_view text) {
  std::lock_guard lock(mutex_);
  clear_progress();
  keep(text);
  err_.flush();
  out_ << text;
  if (!text.ends_with('\n')) out_ << '\n';
  out_.flush();
}

void Console::stream(std::string_view text) {
  std::lock_guard lock(mutex_);
  clear_progress();
  err_.flush();
  out_ << text << std::flush;
}

void Console::log(std::string_view line) {
  std::lock_guard lock(mutex_);
  keep(line);
  if (quiet_) return;
  clear_progress();
  err_ << line << '\n' << std::flush;
}

void Console::warn(std::string_view line) {
  std::lock_guard lock(mutex_);
  keep("warning: " + std::string(line));
  clear_progress();
  err_ << "warning: " << line << '\n' << std::flush;
}

void Console::progress(std::string_view line) {
  if (quiet_) return;
  std::lock_guard lock(mutex_);
  if (terminal_) {
    clear_progress();
    err_ << cut(line, terminal_width() - 1) << std::flush;
    progress_shown_ = true;
  } else {
    err_ << line << '\n' << std::flush;
  }
}

void Console::passing(std::string_view line) {
  constexpr auto kPause = std::chrono::seconds(5);
  {
    std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ && now < next_passing_) return;
    next_passing_ = now + kPause;
  }
  progress(line);
}

void Console::end_progress() {
  std::lock_guard lock(mutex_);
  if (progress_shown_) err_ << '\n' << std::flush;
  progress_shown_ = false;
}

std::string Console::painted(std::string_view word, Colour colour) const {
  if (!colour_ || colour == Colour::none) return std::string(word);
  const char* code = colour == Colour::green ? "\033[32m" : colour == Colour::yellow ? "\033[33m" : "\033[31m";
  return code + std::string(word) + "\033[0m";
}

}  // namespace spillway::app
