#include "trainer/events/lines_backward.h"

#include <algorithm>
#include <span>

namespace spillway::trainer {
namespace {

constexpr i64 kPieceBytes = 64 * kKiB;

}  // namespace

bool LinesBackward::next(Line& line) {
  if (end_ == 0) return false;
  line = {.begin = end_, .end = end_};
  bool first = true;  // true until the byte before end_ was examined, which may be this line's line feed
  for (bool found = false; !found && line.begin > 0;) {
    if (piece_.empty() || line.begin <= begin_ || line.begin > begin_ + std::ssize(piece_)) {
      begin_ = std::max<i64>(0, line.begin - kPieceBytes);
      piece_.resize(static_cast<size_t>(line.begin - begin_));
      file_.read(begin_, std::as_writable_bytes(std::span(piece_)));
    }
    std::string_view left = std::string_view(piece_).substr(0, static_cast<size_t>(line.begin - begin_));
    if (first && left.ends_with('\n')) {
      line.ends = true;
      left.remove_suffix(1);
    }
    first = false;
    const size_t feed = left.rfind('\n');
    found = feed != left.npos;
    const std::string_view piece = found ? left.substr(feed + 1) : left;
    line.begin = begin_ + (found ? static_cast<i64>(feed) + 1 : 0);
    if (line.end - line.begin > kLongest) {
      line.text.clear();
    } else {
      line.text.insert(0, piece);
    }
  }
  end_ = line.begin;
  return true;
}

LastLine last_line_of(const data::File& file, i64 step, i64 (*step_of)(const std::string& line)) {
  LinesBackward lines(file);
  for (LinesBackward::Line line; step > 0 && lines.next(line);) {
    const i64 its_step = line.ends ? step_of(line.text) : 0;
    if (its_step >= 1 && its_step <= step) return {its_step, line.begin, line.end, std::move(line.text)};
  }
  return {};
}

}  // namespace spillway::trainer
