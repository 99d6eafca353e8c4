#include "trainer/node/messages.h"

#include <algorithm>

#include "base/printable.h"

namespace spillway::trainer {

void Messages::record(std::function<void(std::string_view)> record) {
  std::lock_guard lock(mutex_);
  record_ = std::move(record);
  if (!record_) return;
  for (const std::string& line : early_) record_(line);
  early_.clear();
}

// The number of stored lines is limited, because record() may never be called.
void Messages::keep(std::string_view line) {
  constexpr size_t kMostEarly = 1000;
  if (record_) {
    record_(line);
  } else if (early_.size() < kMostEarly) {
    early_.emplace_back(line);
  }
}

LineMessages::LineMessages(std::function<void(std::string_view)> line, bool quiet, bool json)
    : line_(std::move(line)), quiet_(quiet), json_(json) {}

void LineMessages::pass(std::string_view line) const {
  if (line_) line_(line);
}

void LineMessages::result(std::string_view given) {
  const std::string text = for_terminal(given);
  std::lock_guard lock(mutex_);
  keep(text);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    pass(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
}

void LineMessages::log(std::string_view given) {
  const std::string line = for_terminal(given);
  std::lock_guard lock(mutex_);
  keep(line);
  if (!quiet_) pass(line);
}

void LineMessages::warn(std::string_view given) {
  const std::string line = "warning: " + for_terminal(given);
  std::lock_guard lock(mutex_);
  keep(line);
  pass(line);
}

void LineMessages::progress(std::string_view given) {
  if (quiet_) return;
  const std::string line = in_one_line(given);
  std::lock_guard lock(mutex_);
  pass(line);
}

}  // namespace spillway::trainer
