#include "data/steps_ahead.h"

namespace spillway::data {

StepBatch StepsAhead::step(i64 cursor) {
  const bool known = next_.valid() && next_cursor_ == cursor;
  StepBatch batch = known ? next_.get() : loader_.step(cursor);
  next_cursor_ = loader_.cursor_after(cursor);
  next_ = std::async(std::launch::async, [this] {
    const Stream stream{Device::cpu(), nullptr, &memory_};
    const StreamScope scope(stream);
    return loader_.step(next_cursor_);
  });
  return batch;
}

}  // namespace spillway::data
