#include "data/files/write_behind.h"

#include <utility>
#include <vector>

namespace spillway::data {
namespace {

constexpr i64 kSendBytes = kMiB, kBehindBytes = 16 * kMiB;

}  // namespace

void WriteBehind::wrote(i64 begin, i64 end) {
  Range next;
  std::vector<Range> oldest;
  {
    const std::lock_guard lock(mutex_);
    if (begin == collected_.end && collected_.bytes() < kSendBytes) {
      collected_.end = end;
      return;
    }
    next = std::exchange(collected_, {begin, end});
    on_the_way_.push_back(next);
    on_the_way_bytes_ += next.bytes();
    while (on_the_way_bytes_ > kBehindBytes) {
      oldest.push_back(on_the_way_.front());
      on_the_way_bytes_ -= oldest.back().bytes();
      on_the_way_.pop_front();
    }
  }
  if (next.bytes() > 0) file_.send(next.begin, next.bytes());
  for (const Range& range : oldest) file_.send_and_drop(range.begin, range.bytes());
}

}  // namespace spillway::data
