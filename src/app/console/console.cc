#include "app/console/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/printable.h"

namespace spillway::app {
namespace {

constexpr const char *kGreen = "\033[32m", *kYellow = "\033[33m", *kRed = "\033[31m", *kNone = "\033[0m";

size_t terminal_width(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

// Returns the number of bytes in the first `columns` UTF-8 characters of the line. Colour codes take no column.
size_t bytes_of(std::string_view line, size_t columns) {
  size_t at = 0;
  for (size_t column = 0; at < line.size(); ++at) {
    if (line[at] == '\033') {
      at = std::min(line.find('m', at), line.size() - 1);
      continue;
    }
    const bool starts = (static_cast<unsigned char>(line[at]) & 0xC0) != 0x80;
    if (starts && column++ == columns) break;
  }
  return at;
}

// Returns a progress line cut to `columns`, because a line that wraps cannot be replaced by the next
// one. The parts of a progress line are separated by two spaces, and the line is cut between parts.
std::string_view cut(std::string_view line, size_t columns) {
  const size_t fits = bytes_of(line, columns);
  if (fits == line.size()) return line;
  const size_t gap = line.substr(0, fits + 1).rfind("  ");
  return line.substr(0, gap == line.npos || gap == 0 ? fits : gap);
}

// Returns whether the line is a command that users may paste. wrapped_line() does not wrap such a line,
// so that the terminal copies it as one line. "spillway train: …" is a message and not a command.
bool is_command(std::string_view line) {
  std::string_view words = line.substr(std::min(line.find_first_not_of(' '), line.size()));
  if (words.starts_with("python")) return true;
  constexpr std::string_view kName = "spillway ";
  if (!words.starts_with(kName)) return false;
  words.remove_prefix(kName.size());
  return !words.substr(0, words.find(' ')).ends_with(':');
}

// Wraps a line between words. The continuation lines are indented further than the first. A command at the end of a line, which
// "next: " announces, gets a line of its own if the line is too long.
std::string wrapped_line(std::string_view line, size_t columns) {
  const std::string indent(std::min(line.find_first_not_of(' '), line.size()) + 4, ' ');
  constexpr std::string_view kNext = " next: ";
  if (const size_t next = line.find(kNext); bytes_of(line, columns) < line.size() && next != line.npos) {
    const size_t command = next + kNext.size();
    if (is_command(line.substr(command)))
      return wrapped_line(line.substr(0, command - 1), columns) + "\n" + indent + std::string(line.substr(command));
  }
  std::string out, rest(line);
  for (size_t begin = indent.size() - 4; !is_command(line); begin = indent.size()) {
    const size_t fits = bytes_of(rest, columns), space = fits < rest.size() ? rest.rfind(' ', fits) : rest.npos;
    if (space == rest.npos || space <= begin) break;
    out += rest.substr(0, rest.find_last_not_of(' ', space) + 1) + "\n";
    rest = indent + rest.substr(space + 1);
  }
  return out + rest;
}

std::string wrapped(std::string_view text, size_t columns) {
  std::string out;
  for (size_t begin = 0, end = 0; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    out += (begin > 0 ? "\n" : "") + wrapped_line(text.substr(begin, end - begin), columns);
  }
  return out;
}

}  // namespace

Console::Console(std::ostream& out, std::ostream& err, bool terminal, bool colour, bool out_terminal)
    : out_(out), err_(err), terminal_(terminal), colour_(colour), out_terminal_(out_terminal) {}

Console::~Console() { end_progress(); }

std::pair<size_t, size_t> Console::size() const {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 && size.ws_row > 1;
  return known ? std::pair<size_t, size_t>(size.ws_col, size.ws_row) : std::pair<size_t, size_t>(80, 24);
}

std::string Console::cut_to(std::string_view line, size_t columns) { return std::string(line.substr(0, bytes_of(line, columns))); }

void Console::clear_progress() {
  if (!progress_shown_) return;
  err_ << "\r\033[K";
  progress_shown_ = false;
}

// Makes control characters visible, except the colour codes that painted() inserted.
std::string Console::shown(std::string_view text) const {
  if (!colour_) return for_terminal(text);
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t escape = std::min(text.find('\033', begin), text.size());
    out += for_terminal(text.substr(begin, escape - begin));
    const std::string_view rest = text.substr(escape);
    const auto codes = std::array<std::string_view, 4>{kGreen, kYellow, kRed, kNone};
    const auto code = std::ranges::find_if(codes, [&](std::string_view one) { return rest.starts_with(one); });
    const std::string_view taken = code != codes.end() ? *code : rest.substr(0, 1);
    out += code != codes.end() ? std::string(taken) : for_terminal(taken);
    begin = escape + taken.size();
  }
  return out;
}

void Console::result(std::string_view given) {
  std::lock_guard lock(mutex_);
  clear_progress();
  const std::string text = shown(given);
  keep(text);
  err_.flush();
  out_ << (out_terminal_ && !json_ ? wrapped(text, terminal_width(STDOUT_FILENO)) : text);
  if (!text.ends_with('\n')) out_ << '\n';
  out_.flush();
}

void Console::result(const std::function<std::string()>& json, const std::function<std::string()>& text) {
  result(json_ ? json() : text());
  if (json_ && text_) *text_ << text();
}

void Console::stream(std::string_view text) {
  std::lock_guard lock(mutex_);
  clear_progress();
  err_.flush();
  out_ << (out_terminal_ ? shown(text) : std::string(text)) << std::flush;
}

void Console::draw(std::string_view text) {
  std::lock_guard lock(mutex_);
  clear_progress();
  err_.flush();
  out_ << text << std::flush;
}

void Console::log(std::string_view given) {
  std::lock_guard lock(mutex_);
  const std::string line = for_terminal(given);
  keep(line);
  if (quiet_) return;
  clear_progress();
  say(line);
}

void Console::warn(std::string_view given) {
  std::lock_guard lock(mutex_);
  const std::string line = "warning: " + for_terminal(given);
  keep(line);
  clear_progress();
  say(line);
}

void Console::say(std::string_view text) {
  err_ << (terminal_ ? wrapped(text, terminal_width(STDERR_FILENO)) : std::string(text)) << '\n' << std::flush;
}

void Console::progress(std::string_view given) {
  if (quiet_) return;
  std::lock_guard lock(mutex_);
  const std::string line = in_one_line(given);
  if (terminal_) {
    clear_progress();
    err_ << cut(line, terminal_width(STDERR_FILENO) - 1) << std::flush;
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
  const char* code = colour == Colour::green ? kGreen : colour == Colour::yellow ? kYellow : kRed;
  return code + std::string(word) + kNone;
}

}  // namespace spillway::app
