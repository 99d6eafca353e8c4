#include "app/report/lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace spillway::app {
namespace {

[[noreturn]] void cannot_read(const std::filesystem::path& file) {
  throw Error(ErrorCode::io, fmt::format("[report] {} cannot be read: look at its permissions and the disk", file.string()));
}

}  // namespace

Lines::Lines(std::filesystem::path file) : file_(std::move(file)), in_(file_, std::ios::binary | std::ios::ate) {
  if (!in_) cannot_read(file_);
  size_ = static_cast<i64>(in_.tellg());
  rewind();
}

void Lines::rewind() {
  in_.clear();
  in_.seekg(0);
  left_ = size_;
  number_ = 0;
  buffer_.clear();
  at_ = 0;
}

bool Lines::fill() {
  if (left_ == 0) return false;
  buffer_.resize(static_cast<size_t>(std::min<i64>(left_, i64{1} << 18)));
  in_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  if (in_.gcount() == 0 && in_.bad()) cannot_read(file_);
  buffer_.resize(static_cast<size_t>(in_.gcount()));  // less where the file was cut meanwhile
  left_ = in_ ? left_ - static_cast<i64>(buffer_.size()) : 0;
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

}  // namespace spillway::app
