#include "trainer/events/lines.h"

#include <algorithm>
#include <span>

namespace spillway::trainer {

Lines::Lines(const std::filesystem::path& file) : in_(data::File::open(file)) {}

void Lines::rewind() {
  read_ = 0;
  number_ = 0;
  buffer_.clear();
  at_ = 0;
}

bool Lines::fill() {
  constexpr i64 kPieceBytes = 256 * kKiB;
  buffer_.resize(static_cast<size_t>(std::min(in_.size_bytes() - read_, kPieceBytes)));
  in_.read(read_, std::as_writable_bytes(std::span(buffer_)));
  read_ += std::ssize(buffer_);
  at_ = 0;
  return !buffer_.empty();
}

bool Lines::next(Line& line) {
  line = {.number = ++number_, .ends = false};
  bool any = false;
  while (at_ < buffer_.size() || fill()) {
    any = true;
    const size_t end = std::min(buffer_.find('\n', at_), buffer_.size());
    line.too_long |= line.text.size() + end - at_ > kLongest;
    if (line.too_long) {
      line.text.clear();
    } else {
      line.text.append(buffer_, at_, end - at_);
    }
    line.ends = end < buffer_.size();
    at_ = end + 1;
    if (line.ends) break;
  }
  return any;
}

}  // namespace spillway::trainer
